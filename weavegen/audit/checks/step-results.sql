-- proves: a done step has a result, except samples, lints and scores of finished ticks, whose results are
--   emptied
-- subject: steps
select s.trace_id, 'step ' || s.id, case when s.result is null
    then format('this %s step is done, but its result is missing', s.kind)
    else format('this %s step has a result, but its tick is finished', s.kind) end
from steps s join traces t on t.id = s.trace_id
left join ticks k on k.trace_id = s.trace_id and k.number = s.tick
where {scope} and s.status = 'done' and (s.result is null)
  <> (s.kind in ('sample', 'lint', 'score') and k.finished_at is not null)
order by 1, s.id
