-- Ends a tick. ticks: how many of the trace are over now.
with ended as (update ticks set finished_at = clock_timestamp() where trace_id = :trace and number = :tick)
update traces set ticks = :ticks where id = :trace
