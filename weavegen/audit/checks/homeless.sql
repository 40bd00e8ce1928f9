-- proves: every block, step and evaluation belongs to an existing tick
-- subject: ticks
select b.trace_id, 'block ' || b.index, format('its tick %s is missing', b.tick)
from blocks b join traces t on t.id = b.trace_id
left join ticks k on k.trace_id = b.trace_id and k.number = b.tick
where {scope} and k.id is null
union all
select s.trace_id, 'step ' || s.id, case when k.id is null then format('its tick %s is missing', s.tick)
    else format('it belongs to run %s, but its tick had %s runs', s.run, k.run + 1) end
from steps s join traces t on t.id = s.trace_id
left join ticks k on k.trace_id = s.trace_id and k.number = s.tick
where {scope} and (k.id is null or s.run > k.run or s.run < 0)
union all
select e.trace_id, 'evaluation ' || e.id, format('it belongs to tick %s, but its step does not', e.tick)
from evaluations e join traces t on t.id = e.trace_id join steps s on s.id = e.step_id
where {scope} and (s.trace_id, s.tick) <> (e.trace_id, e.tick)
order by 1
