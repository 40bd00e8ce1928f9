-- The candidates of a step with their values and tokens, and what an export says about each and about their sampling.
-- Nodes of a tree search are left out.
select v.trace_id, v.index, v.step_id, v.type, v.round, v.tick, v.tick_reward, v.tick_protected, v.bootstrap, v.job,
  v.text, v.finish_reason, v.value, c.token_ids::text as token_ids, c.logprobs::text as logprobs,
  json_build_object('candidate_id', v.candidate_id, 'position', v.position, 'kept', v.block_id is not null) as about,
  (
    select json_object_agg(name, s.request -> name)
    from unnest(array['n', 'temperature', 'top_k', 'repetition_penalty', 'max_tokens', 'seed']) name
  ) as sampling
from candidate_values v join candidates c on c.id = v.candidate_id join steps s on s.id = v.step_id
where v.trace_id = :trace and v.step_id = :step and v.depth is null
order by v.position
