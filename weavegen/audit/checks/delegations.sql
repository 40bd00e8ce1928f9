-- proves: every delegated task that was not refused has exactly one trace, in a job that the caller's job created,
--   and its result is what that trace returned
-- subject: delegations
select s.trace_id, 'step ' || s.id, case
    when c.n <> 1 then format('it is %s, but has %s traces of the agent %s', s.status, c.n,
      s.request ->> 'agent')
    when d.status not in ('ended', 'failed', 'cancelled')
      then format('it is done, but its trace %s is %s', d.id, d.status)
    when (s.result ->> 'trace')::bigint is distinct from d.id
      then format('its result is that of trace %s, but its trace is %s', s.result ->> 'trace', d.id)
    else format('its result differs from what trace %s returned', d.id)
  end
from steps s join traces t on t.id = s.trace_id
cross join lateral (select count(*) as n, max(c.id) as id from traces c where c.called_by = s.id) c
left join traces d on d.id = c.id
where {scope} and s.kind = 'delegate' and s.copy_of is null
  and not (c.n = 0 and s.status = 'done' and s.result ->> 'trace' is null and s.result ->> 'error' is not null)
  and (c.n <> 1 or s.status = 'done' and (
  d.status not in ('ended', 'failed', 'cancelled') or (s.result ->> 'trace')::bigint is distinct from d.id
  or nullif(s.result -> 'returned', 'null') is distinct from nullif(d.returned, 'null')
  or (s.result ->> 'error' is null) <> (d.status = 'ended' and d.ended_because = 'returned')
  or d.status = 'failed' and s.result ->> 'error' <> d.failure))
union all
select t.id, 'its row', case
    when s.kind <> 'delegate' then format('its caller, step %s, is of kind %s',
      s.id, s.kind)
    when j.agent <> s.request ->> 'agent' then format('its agent is %s, but step %s asked for %s',
      j.agent, s.id, s.request ->> 'agent')
    else format('step %s asked for it, but job %s did not create its job', s.id, o.job_id)
  end
from traces t join jobs j on j.id = t.job_id join steps s on s.id = t.called_by
join traces o on o.id = s.trace_id
where {scope} and (s.kind <> 'delegate' or j.agent is distinct from s.request ->> 'agent'
  or j.called_by is distinct from o.job_id)
order by 1
