-- proves: every block that had to be executed was executed: bootstraps, returns, and valid callbacks that were
--   not taken back
-- subject: blocks
select b.trace_id, 'block ' || b.index, format('this %s was never executed', b.type)
from (
  select b.*, lead(b.type) over (partition by b.trace_id, b.tick order by b.index) as next
  from blocks b join traces t on t.id = b.trace_id where {scope}
) b
join traces t on t.id = b.trace_id join jobs j on j.id = t.job_id
join ticks k on k.trace_id = b.trace_id and k.number = b.tick
where b.executed_by is null and b.compiles and (b.type in ('bootstrap', 'return')
  or b.type in ('action', 'observation-inference', 'evaluation')
    and not (j.agent = 'planning' and b.tick > 0 or b.tags @> '{imagined}') and b.next is distinct from 'backtrack'
    and (b.next is not null or k.finished_at is not null and t.status <> 'failed'))
order by 1, b.index
