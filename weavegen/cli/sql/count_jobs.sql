-- The number of jobs.
select count(*) from jobs
