-- proves: the programs of a FunSearch are numbered from 0 without gaps; each names a message of its own tick
--   and parents with lower numbers
-- subject: programs
select p.trace_id, 'program ' || p.number, case
    when p.step <> 1 then format('%s programs before it are missing', p.step - 1)
    when (p.candidate_id is null) <> (p.generation = 0)
      then format('it is of generation %s, but names %s', p.generation,
        case when p.candidate_id is null then 'no candidate' else 'a candidate' end)
    when (c.trace_id, s.tick) <> (p.trace_id, p.tick)
      then format('its candidate %s belongs to another tick', c.id)
    when p.number <= any(p.parents) then 'a parent of it has a higher number'
    else 'it must have either a score or an error'
  end
from (
  select p.*, p.number - lag(p.number, 1, -1::bigint) over w as step
  from programs p join traces t on t.id = p.trace_id where {scope}
  window w as (partition by p.trace_id order by p.number)
) p
left join candidates c on c.id = p.candidate_id left join steps s on s.id = c.step_id
where p.step <> 1 or (p.candidate_id is null) <> (p.generation = 0)
  or (c.trace_id, s.tick) <> (p.trace_id, p.tick) or p.number <= any(p.parents)
  or (p.score is null) = (p.error is null)
order by 1, p.number
