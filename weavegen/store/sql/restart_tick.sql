-- Begins another run of a tick, by this version of weavegen.
with restarted as (update ticks set run = run + 1, version = :version where trace_id = :trace and number = :tick)
update traces set restarts = restarts + 1 where id = :trace
