-- Deletes the rows of the open environments of these traces, or of all (null).
delete from environments
where closed_at is null and (trace_id = any(cast(:traces as bigint[])) or cast(:traces as bigint[]) is null)
