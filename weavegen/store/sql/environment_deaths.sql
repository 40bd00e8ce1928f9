-- How many environments of a trace died.
select count(*) from environments where trace_id = :trace and closed_at is not null
