-- proves: except in paused jobs, no step is held beyond its lease, and no ready step that a worker could take is overdue
--   to be sent
-- subject: open steps
-- findings: remarks while the installation is down
select s.trace_id, 'step ' || s.id, case s.status
    when 'running' then format('its lease expired %s s ago, and no worker took it over from %s',
      round(extract(epoch from now() - s.lease_until)), coalesce(s.worker, 'its worker'))
    else format('it is ready, and should have been sent again %s s ago',
      round(extract(epoch from now() - s.send_after)))
  end
from steps s join traces t on t.id = s.trace_id join jobs j on j.id = t.job_id
where {scope} and t.status = 'running' and j.state <> 'paused'
  and s.kind <> all(:waits) and (
  s.status = 'running' and s.lease_until < now() - make_interval(secs => :grace)
  or s.status = 'ready' and s.send_after < now() - make_interval(secs => :grace)
    and (s.queue not like 'execute.%' or {store/queue_is_served}))
order by 1, s.id
