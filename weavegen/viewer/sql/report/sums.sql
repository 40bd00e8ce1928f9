select * from yield_by_job where job_id = :job
