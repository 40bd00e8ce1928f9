-- proves: every subagent that executed code is on the problem map, and so is its parent; function calls,
--   trials and Harbor's tests need no map
-- subject: subagents
select t.id, 'tick ' || k.number, format('its subagent %s is not on the problem map', k.subagent)
from ticks k join traces t on t.id = k.trace_id
left join subagents a on a.trace_id = k.trace_id and a.name = k.subagent
where {scope} and t.status <> 'failed' and a.id is null and exists (
  select from steps s where s.trace_id = t.id and s.tick = k.number and s.run = k.run
    and s.kind = 'execute' and s.status = 'done' and s.request ->> 'op' not in ('call', 'tool', 'tools', 'trial', 'try', 'solve', 'verify'))
union all
select t.id, 'subagent ' || a.name, format('its parent %s is missing', a.parent)
from subagents a join traces t on t.id = a.trace_id
left join subagents p on p.trace_id = a.trace_id and p.name = a.parent
where {scope} and a.parent is not null and p.id is null
order by 1
