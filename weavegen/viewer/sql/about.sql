-- The first 500 events of a trace.
select at, kind, detail from events where trace_id = :trace order by id limit 500
