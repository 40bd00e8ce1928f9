-- Cancels the queued and running traces of a job.
with cancelled as (
  update traces set status = 'cancelled', finished_at = clock_timestamp()
  where job_id = :job and status in ('queued', 'running')
  returning id
), told as (
  insert into events (trace_id, kind) select id, 'cancelled' from cancelled
)
select id from cancelled
