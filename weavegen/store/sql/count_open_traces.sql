-- How many traces are queued or running, of jobs that are not paused.
select count(*) from traces t join jobs j on j.id = t.job_id
where t.status in ('queued', 'running') and j.state <> 'paused'
