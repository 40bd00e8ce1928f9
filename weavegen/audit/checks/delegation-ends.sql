-- proves: no trace works for a step that no longer waits, and no step waits for a trace that has ended
-- subject: delegations
-- findings: remarks while the installation is down
select t.id, 'its row', format('it is %s, but its caller, step %s of trace %s, is %s', t.status,
    s.id, o.id, s.status)
from traces t join steps s on s.id = t.called_by join traces o on o.id = s.trace_id
where {scope} and t.status in ('queued', 'running') and s.status not in ('running', 'done')
  and greatest(s.ready_at, o.finished_at, (
    select max(e.at) from events e where e.trace_id = o.id and e.kind = 'tick restarted'
  )) < now() - make_interval(secs => :grace)
union all
select t.id, 'step ' || s.id, format('it waits for trace %s, which ended %s s ago', d.id,
    round(extract(epoch from now() - d.finished_at)))
from steps s join traces t on t.id = s.trace_id join traces d on d.called_by = s.id
where {scope} and s.kind = 'delegate' and s.status = 'running'
  and d.status in ('ended', 'failed', 'cancelled')
  and d.finished_at < now() - make_interval(secs => :grace)
order by 1
