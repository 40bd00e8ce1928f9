-- How many traces are queued or running, of jobs that are not paused. Each status by itself, because each has an index.
with open as (
  select job_id from traces where status = 'queued' union all select job_id from traces where status = 'running'
)
select count(*) from open t join jobs j on j.id = t.job_id where j.state <> 'paused'
