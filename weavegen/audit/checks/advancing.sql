-- proves: a running trace of a job that is not paused has a step that is ready or running, or waits for another trace or a person
-- subject: running traces
-- findings: remarks while the installation is down
select t.id, 'its row', format('it is running, but has had no open step for %s s',
    round(extract(epoch from now() - s.last)))
from traces t join jobs j on j.id = t.job_id cross join lateral (
  select greatest(max(s.finished_at), t.started_at) as last from steps s where s.trace_id = t.id
) s
where {scope} and t.status = 'running' and j.state <> 'paused' and s.last < now() - make_interval(secs => :grace) and not exists (
  select from steps o where o.trace_id = t.id and o.status in ('ready', 'running') and o.kind <> 'work')
order by 1
