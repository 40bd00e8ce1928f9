-- The subagents that wrote blocks, in the order of their first blocks.
select b.subagent as name, json_build_object('subagent', json_build_object('name', b.subagent, 'parent', min(a.parent),
  'description', min(a.description), 'completed', bool_or(a.completed))) as extra
from blocks b left join subagents a on a.trace_id = b.trace_id and a.name = b.subagent
where b.trace_id = :trace and b.subagent <> 'main' group by b.subagent order by min(b.index)
