-- proves: a finished call has ticks of its subagent, and its return stands directly after them
-- subject: calls
with {audit/live}
select s.trace_id, 'step ' || s.id, case
    when not exists (select from ticks i where i.trace_id = s.trace_id and i.caller = s.tick
      and i.subagent = s.request ->> 'subagent')
      then format('it called %s, which has no tick', s.request ->> 'subagent')
    when l.id is null or l.type <> s.result ->> 'last_type'
      then format('before block %s it recorded one of type %s, but there is %s', s.result ->> 'index',
        s.result ->> 'last_type', coalesce('one of type ' || l.type, 'none'))
    else format('the return of %s should be block %s, but that has type %s and tick %s',
      s.request ->> 'subagent', b.index, b.type, b.tick)
  end
from live k join steps s on s.trace_id = k.trace_id and s.tick = k.number and s.run = k.run
left join blocks b on b.trace_id = s.trace_id and b.index = (s.result ->> 'index')::bigint
left join blocks l on l.trace_id = s.trace_id and l.index = (s.result ->> 'index')::bigint - 1
where s.kind = 'work' and s.status in ('running', 'done') and (
  not exists (select from ticks i where i.trace_id = s.trace_id and i.caller = s.tick
    and i.subagent = s.request ->> 'subagent')
  or s.status = 'done' and (l.id is null or l.type <> s.result ->> 'last_type'
    or b.type <> 'return' or b.tick <> s.tick))
order by 1, s.id
