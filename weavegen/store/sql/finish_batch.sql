-- Ends a batch that a worker holds, or whose lease has expired before any other worker claimed it.
update campaign_batches set status = 'done', lease_until = null, finished_at = clock_timestamp(),
  model_seconds = coalesce(model_seconds, 0) + :seconds
where id = :id and claims = :claims and status in ('running', 'sent', 'waiting')
