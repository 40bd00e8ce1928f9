-- Uses the partial index on open steps, of which each running trace has a few.
select s.queue, s.kind, s.status, j.state = 'paused' as paused, count(*) as steps,
  count(*) filter (where s.failure is not null) as retrying,
  extract(epoch from clock_timestamp() - min(s.ready_at))::double precision as oldest
from steps s join traces t on t.id = s.trace_id join jobs j on j.id = t.job_id
where s.status in ('ready', 'running')
group by s.queue, s.kind, s.status, j.state = 'paused'
