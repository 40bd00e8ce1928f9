-- proves: an environment that started after steps were done repeated these steps first
-- subject: environments
select e.trace_id, 'environment ' || e.id, format('it started after %s steps were done, but no '
    || 'event says that it repeated them', e.done)
from (
  select e.id, e.trace_id, e.steps_done as done, row_number() over (partition by e.trace_id order by e.id) as number
  from environments e join traces t on t.id = e.trace_id
  where {scope} and e.steps_done > 0
) e
where e.number > (
  select count(*) from events v where v.trace_id = e.trace_id and v.kind = 'environment rebuilt')
order by 1, e.id
