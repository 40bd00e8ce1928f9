-- proves: each step of a tick's run occurs once in the journal
-- subject: steps
select s.trace_id, format('tick %s, run %s, step %s', s.tick, s.run, s.ordinal),
  format('it occurs %s times, %s of them done', count(*), count(*) filter (where s.status = 'done'))
from steps s join traces t on t.id = s.trace_id where {scope}
group by s.trace_id, s.tick, s.run, s.ordinal having count(*) > 1 order by 1
