select k.number, k.subagent, k.reward, k.protected, k.not_evaluated, k.repeats, k.run, k.first_block, k.finished_at,
  lead(k.first_block) over (order by k.number) as next_block,
  -- A fork's lag is that of its own ticks; the others are copies.
  case when {viewer/own_tick}
    then extract(epoch from k.finished_at)::float - k.clock - t.lag end as seconds
from ticks k join traces t on t.id = k.trace_id where k.trace_id = :trace order by k.number
