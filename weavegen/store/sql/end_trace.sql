-- Ends a running trace.
update traces set status = :status, finished_at = clock_timestamp(), ended_because = :ended_because,
  failure_kind = :failure_kind, failure = :failure, returned = cast(:returned as jsonb)
where id = :trace
