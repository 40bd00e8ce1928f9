-- Ends a step that no worker claims.
update steps set status = 'done', result = cast(:result as jsonb), finished_at = clock_timestamp()
where id = :step and status = 'running'
