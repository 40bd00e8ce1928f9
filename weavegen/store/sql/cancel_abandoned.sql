-- Cancels delegated traces that nobody waits for any more.
with cancelled as (
  update traces set status = 'cancelled', finished_at = clock_timestamp()
  where id in (
      select t.id from traces t join steps s on s.id = t.called_by
      where t.status = 'running' and s.status = 'void'  -- a delegated trace is never queued
    )
    and status = 'running'
  returning id
), told as (
  insert into events (trace_id, kind, detail) select id, 'cancelled', 'its caller no longer waits for it' from cancelled
)
select id from cancelled
