-- proves: block indexes run from 0 without gaps, and no index occurs twice
-- subject: blocks
select trace, 'block ' || index, case
    when step = 0 then 'another block has the same index'
    when step = index + 1 then format('it is the first block: %s blocks before it are missing', index)
    else format('%s blocks before it are missing', step - 1)
  end
from (
  select b.trace_id as trace, b.index, b.index - lag(b.index, 1, -1::bigint) over w as step
  from blocks b join traces t on t.id = b.trace_id where {scope}
  window w as (partition by b.trace_id order by b.index)
) x where step <> 1 order by trace, index
