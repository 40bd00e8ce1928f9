-- The first trace of a job.
select min(id) from traces where job_id = :job
