-- The ticks of a trace. first, last and blocks: which blocks have the tick's number, and how many. These are all from first to
-- last unless ticks of subagents are between them, and none if it has written none.
select k.number, k.subagent, k.reward, k.protected, k.not_evaluated, k.repeats, k.run, k.first_block, k.finished_at,
  lead(k.first_block) over (order by k.number) as next_block, b.first, b.last, coalesce(b.blocks, 0) as blocks,
  -- A fork's lag is that of its own ticks; the others are copies.
  case when {viewer/own_tick}
    then extract(epoch from k.finished_at)::float - k.clock - t.lag end as seconds
from ticks k join traces t on t.id = k.trace_id
left join (
  select tick, min(index) as first, max(index) as last, count(*) as blocks from blocks where trace_id = :trace group by tick
) b on b.tick = k.number
where k.trace_id = :trace order by k.number
