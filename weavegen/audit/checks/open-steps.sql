-- proves: only the newest run of a running trace's open ticks has open steps; a finished tick has none
-- subject: steps
select s.trace_id, 'step ' || s.id, case
    when t.status <> 'running' then format('it is %s, but its trace is %s', s.status, t.status)
    when k.finished_at is not null then format('it is %s, but its tick is finished', s.status)
    when s.run < k.run then format('it is %s, but its tick was restarted', s.status)
    else format('it is %s, but its tick waits for a subagent', s.status)
  end
from steps s join traces t on t.id = s.trace_id
left join ticks k on k.trace_id = s.trace_id and k.number = s.tick
where {scope} and (
  s.status in ('ready', 'running') and (t.status <> 'running' or k.finished_at is not null
    or s.run < k.run or s.kind <> all(:waits) and exists (
      select from ticks i where i.trace_id = t.id and i.number > k.number and i.finished_at is null))
  or s.run = k.run and k.finished_at is not null
    and (s.status = 'void' or s.status = 'failed' and t.status not in ('failed', 'cancelled')
      and s.kind <> 'consult'))  -- a researcher goes on after a look-up that failed
order by 1, s.id
