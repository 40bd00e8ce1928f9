-- The messages of a trace with their recorded tokens. `first`: for a message that the model wrote, the first block of
-- its conversation.
select b.index as at, b.type, coalesce(c.text, b.body) as text, k.token_ids::text as read,
  (s.request #>> '{prompt,window,0}')::bigint as first, o.tools,
  c.id as candidate_id, c.finish_reason, c.step_id, p.token_ids::text as opening, c.token_ids::text as sampled,
  c.logprobs::text as logprobs
from blocks b
left join toolsets o on o.id = b.toolset_id
left join block_tokens k on k.trace_id = b.trace_id and k.index = b.index
left join candidates c on c.id = b.candidate_id
left join prompts p on p.step_id = c.step_id
left join steps s on s.id = c.step_id
where b.trace_id = :trace and b.type = any(:types) order by b.index
