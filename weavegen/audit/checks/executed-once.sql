-- proves: every execution belongs to exactly one block
-- subject: executions
with {audit/live}
select s.trace_id, 'step ' || s.id,
  format('it executed a block of type %s, but %s blocks name it',
    coalesce(s.request ->> 'type', s.request ->> 'op'), b.n)
from live k join steps s on s.trace_id = k.trace_id and s.tick = k.number and s.run = k.run
join traces t on t.id = s.trace_id
cross join lateral (select count(*) as n from blocks b where b.executed_by = s.id) b
where s.kind = 'execute' and s.status = 'done' and s.request ->> 'op' in ('bootstrap', 'run', 'resume')
  and b.n <> 1 and not (b.n = 0 and t.status = 'failed' and not exists (
    select from steps l where l.trace_id = s.trace_id and l.tick = s.tick and l.run = s.run
      and l.ordinal > s.ordinal))
order by 1, s.id
