-- proves: every candidate of a done lint step has a verdict, and no other candidate has one
-- subject: samples
with {audit/sampled}, lints as materialized (
  select l.trace_id, l.tick, l.run, l.status, (l.request ->> 'sample')::bigint as ordinal
  from steps l join traces t on t.id = l.trace_id where {scope} and l.kind = 'lint'
)
select s.trace_id, 'step ' || s.id, format('of its %s candidates %s have a verdict, but the lint step is %s',
    c.n, c.linted, coalesce(l.status, 'missing'))
from steps s join traces t on t.id = s.trace_id
join sampled c on c.step_id = s.id and c.trace_id = s.trace_id
left join lints l
  on (l.trace_id, l.tick, l.run, l.ordinal) = (s.trace_id, s.tick, s.run, s.ordinal)
where {scope} and s.kind = 'sample' and c.linted <> case when l.status = 'done' then c.n else 0 end
order by 1, s.id
