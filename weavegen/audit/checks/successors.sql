-- proves: each block may follow the block before it (SUCCESSORS in trace/blocks.py), and each trace begins with
--   a block that its agent may begin with
-- subject: blocks
select trace, 'block ' || index, case
    when before is null then format('the trace begins with a block of type %s', type)
    else format('a block of type %s follows one of type %s', type, before)
  end
from (
  select b.trace_id as trace, b.index, b.type, j.agent, lag(b.type) over w as before
  from blocks b join traces t on t.id = b.trace_id join jobs j on j.id = t.job_id where {scope}
  window w as (partition by b.trace_id order by b.index)
) x
where case
  when before is not null then before || ' ' || type <> all(:legal)
  when agent = any(:conversing) then type <> 'bootstrap' and type <> all(:messages)
  else type <> 'genesis'
end
order by trace, index
