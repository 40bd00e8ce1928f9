select distinct on (k.subagent, e.title) k.subagent, e.title, e.value, e.error, e.tick, e.protected, e.cause
from evaluations e join ticks k on k.trace_id = e.trace_id and k.number = e.tick
where e.trace_id = :trace and e.scope = 'task' order by k.subagent, e.title, e.tick desc, e.id desc
