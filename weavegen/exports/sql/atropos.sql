-- The candidates of a step with their values and tokens. Nodes of a tree search are left out.
select v.trace_id, v.step_id, v.candidate_id, v.position, v.index, v.type, v.round, v.tick, v.text,
  v.finish_reason, v.value, v.block_id, v.ran, v.tick_reward, v.tick_protected, v.bootstrap, v.job, s.request,
  c.token_ids::text as token_ids, c.logprobs::text as logprobs
from candidate_values v join candidates c on c.id = v.candidate_id join steps s on s.id = v.step_id
where v.trace_id = :trace and v.step_id = :step and v.depth is null
order by v.position
