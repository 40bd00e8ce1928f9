-- Ends the running steps of a trace of a kind that no worker claims. tick null: of any tick.
update steps set status = 'done', result = cast(:result as jsonb), finished_at = clock_timestamp()
where trace_id = :trace and kind = :kind and (tick = :tick or cast(:tick as bigint) is null) and status = 'running'
