-- proves: except in paused jobs, no step waits for a host whose worker has fallen silent; such steps are not sent again
-- subject: open steps
-- findings: remarks
select s.trace_id, 'step ' || s.id, format('it has waited for %s s, and no worker of the host %s reports',
    round(extract(epoch from now() - s.send_after)), substr(s.queue, length('execute.') + 1))
from steps s join traces t on t.id = s.trace_id join jobs j on j.id = t.job_id
where {scope} and t.status = 'running' and j.state <> 'paused' and s.status = 'ready' and s.queue like 'execute.%'
  and s.send_after < now() - make_interval(secs => :grace) and not {store/queue_is_served}
order by 1, s.id
