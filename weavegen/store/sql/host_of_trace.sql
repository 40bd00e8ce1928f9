-- The host of a trace's open environment.
select host from environments where trace_id = :trace and closed_at is null
