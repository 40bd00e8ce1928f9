-- Cancels the queued and running traces of a job.
update traces set status = 'cancelled', finished_at = clock_timestamp()
where job_id = :job and status in ('queued', 'running')
returning id
