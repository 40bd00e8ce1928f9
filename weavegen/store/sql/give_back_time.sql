-- Moves the deadlines of a trace's open ticks by the seconds that a step has waited and run so far. Not that of a tick that
-- verifies: none of its time counts.
update ticks set deadline = deadline + extract(epoch from clock_timestamp() - s.ready_at)
from steps s
where s.id = :step and ticks.trace_id = s.trace_id and ticks.finished_at is null
  and not coalesce(ticks.state ? 'verification', false)
