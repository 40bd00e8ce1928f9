-- The candidates of a step with their values and tokens.
select v.candidate_id, v.step_id, v.position, v.index, v.value as score, v.tick_reward as reward,
  v.block_id is not null as kept, c.parent_id,
  c.token_ids::text as token_ids, c.logprobs::text as logprobs
from candidate_values v join candidates c on c.id = v.candidate_id
where v.trace_id = :trace and v.step_id = :step order by v.position
