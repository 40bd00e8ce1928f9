-- The traces among these with one of these statuses. job null: of any job.
select id, job_id from traces
where id = any(cast(:chosen as bigint[])) and status = any(:statuses)
  and (job_id = :job or cast(:job as bigint) is null)
