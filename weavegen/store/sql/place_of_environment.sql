-- The host and the process of a trace's open environment.
select host, pid from environments where trace_id = :trace and closed_at is null
