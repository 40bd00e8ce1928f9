-- How far a trace is; its key changes with it. The reward is that of trace.sql.
select t.blocks, t.bytes, t.restarts, t.status, t.ticks, concat_ws(':', t.restarts, t.blocks, t.ticks, t.status) as key,
  t.status in ('ended', 'failed', 'cancelled') as over,
  (select avg(k.reward) from ticks k where k.trace_id = t.id and k.number > 0 and {viewer/own_tick}) as reward
from traces t where t.id = :trace
