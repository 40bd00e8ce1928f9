-- Ticks whose blocks are still there. A subagent's ticks lose theirs when their caller's tick is restarted.
live as (
  select k.* from ticks k join traces t on t.id = k.trace_id
  where {scope} and (k.finished_at is null or k.caller is null or exists (
    select from blocks b where b.trace_id = k.trace_id and b.index = k.first_block and b.tick = k.number))
)
