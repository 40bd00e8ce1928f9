-- gauge steps_paused: Ready steps of paused jobs.
-- gauge steps_expired: Running steps whose lease has expired: their worker does not answer.
select count(*) filter (where s.status = 'ready' and j.state = 'paused') as steps_paused,
  count(*) filter (where s.status = 'running' and s.lease_until < clock_timestamp()) as steps_expired
from steps s join traces t on t.id = s.trace_id join jobs j on j.id = t.job_id
where s.status in ('ready', 'running')
