-- The subagents that wrote blocks, in the order of their first blocks.
select b.subagent as name, min(a.parent) as parent, min(a.description) as description,
  bool_or(a.completed) as completed
from blocks b left join subagents a on a.trace_id = b.trace_id and a.name = b.subagent
where b.trace_id = :trace and b.subagent <> 'main' group by 1 order by min(b.index)
