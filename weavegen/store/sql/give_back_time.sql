-- Moves the deadlines of a trace's open ticks by the seconds that a step has waited and run so far.
update ticks set deadline = deadline + extract(epoch from clock_timestamp() - s.ready_at)
from steps s
where s.id = :step and ticks.trace_id = s.trace_id and ticks.finished_at is null
