-- Ends a step that a worker holds, or whose lease has expired before any other worker claimed it.
update steps set status = :status, lease_until = null, finished_at = clock_timestamp(),
  result = cast(:result as jsonb), failure_kind = :failure_kind, failure = :failure, model_seconds = :model_seconds,
  environment_seconds = :environment_seconds, working_seconds = extract(epoch from clock_timestamp() - claimed_at)
where id = :id and claims = :claims and status in ('running', 'ready')
