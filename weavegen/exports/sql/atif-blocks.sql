-- A page of a subagent's blocks with their candidates and executions. `called`: the subagent whose call the block
-- ended; the call is the step right before the execution.
select b.*, c.tokens, c.token_ids::text as token_ids, c.logprobs::text as logprobs, p.tokens as prompt_tokens,
  p.cached, s.result, w.request ->> 'subagent' as called
from blocks b
left join candidates c on c.id = b.candidate_id
left join prompts p on p.step_id = c.step_id
left join steps s on s.id = b.executed_by
left join steps w on w.trace_id = s.trace_id and w.tick = s.tick and w.run = s.run and w.ordinal = s.ordinal - 1
  and w.kind = 'work'
where b.trace_id = :trace and b.index >= :first and b.subagent = :subagent order by b.index limit :limit
