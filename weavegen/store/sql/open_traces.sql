-- How many traces of a job are queued, and how many are running.
select status, count(*) as traces from traces
where job_id = :job and status in ('queued', 'running') group by status
