-- proves: every block that the model read as tokens (in conversations: every message) has recorded tokens, and
--   no missing block has
-- subject: blocks
with {audit/live}, read as (
  select p.trace_id, (s.request #>> '{prompt,window,1}')::bigint as until,
    min((s.request #>> '{prompt,window,0}')::bigint) as first
  from prompts p join traces t on t.id = p.trace_id join steps s on s.id = p.step_id
  join live k on k.trace_id = s.trace_id and k.number = s.tick and k.run = s.run
  where {scope} and p.token_ids is not null and s.request #>> '{prompt,type}' <> 'assistant' group by 1, 2
), spoken as (  -- one row per conversation; conversations of a trace may be nested
  select p.trace_id, (s.request #>> '{prompt,window,0}')::bigint as first,
    max((s.request #>> '{prompt,window,1}')::bigint) as until
  from prompts p join traces t on t.id = p.trace_id join steps s on s.id = p.step_id
  join live k on k.trace_id = s.trace_id and k.number = s.tick and k.run = s.run
  where {scope} and p.token_ids is not null and s.request #>> '{prompt,type}' = 'assistant' group by 1, 2
), part as (  -- a window never moves back: a block that has left it is in no later window
  select *, lag(until, 1, 0::bigint) over (partition by trace_id order by until) as since from read
)
select b.trace_id, 'block ' || b.index, 'the model read it, but its tokens are missing'
from part join blocks b on b.trace_id = part.trace_id and b.index >= part.since and b.index < part.until
left join block_tokens o on o.trace_id = b.trace_id and o.index = b.index
where (b.index >= part.first or b.index < :pinned) and o.trace_id is null
union
select b.trace_id, 'block ' || b.index, 'the model read it, but its tokens are missing'
from spoken join blocks b on b.trace_id = spoken.trace_id and b.index >= spoken.first
  and b.index < spoken.until and b.type = any(:messages)
left join block_tokens o on o.trace_id = b.trace_id and o.index = b.index where o.trace_id is null
union
select o.trace_id, 'block ' || o.index, 'its tokens are recorded, but the block is missing'
from block_tokens o join traces t on t.id = o.trace_id
left join blocks b on b.trace_id = o.trace_id and b.index = o.index
where {scope} and b.id is null
order by 1
