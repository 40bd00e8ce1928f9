-- Begins another run of a tick.
with restarted as (update ticks set run = run + 1 where trace_id = :trace and number = :tick)
update traces set restarts = restarts + 1 where id = :trace
