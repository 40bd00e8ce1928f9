-- proves: no environment is open whose trace has ended or has not started
-- subject: environments
-- findings: remarks while the installation is down
select t.id, 'environment ' || e.id, format('it is open on %s, but its trace is %s', e.host, t.status)
from environments e join traces t on t.id = e.trace_id
where {scope} and e.closed_at is null and t.status <> 'running'
  and coalesce(t.finished_at < now() - make_interval(secs => :grace), true)
order by 1
