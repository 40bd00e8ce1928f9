-- proves: a done sample step has as many candidates as it requested, other steps have none, and a tree search's
--   candidates continue their parents
-- subject: samples
with {audit/sampled}
select s.trace_id, 'step ' || s.id, format('this %s step is %s and requested %s candidates; %s are recorded, the '
    || 'last at position %s', s.kind, s.status, coalesce(s.request ->> 'n', '0'), coalesce(c.n, 0), c.last)
from steps s join traces t on t.id = s.trace_id
left join sampled c on c.step_id = s.id and c.trace_id = s.trace_id
where {scope} and s.copy_of is null and (s.kind = 'sample' or c.n is not null) and (
  c.last <> c.n - 1 or coalesce(c.n, 0)
  <> case when s.kind = 'sample' and s.status = 'done' then (s.request ->> 'n')::int else 0 end)
union all
select c.trace_id, 'candidate ' || c.id, format('it does not continue its parent, candidate %s', p.id)
from candidates c join traces t on t.id = c.trace_id join candidates p on p.id = c.parent_id
where {scope} and (p.trace_id <> c.trace_id or p.depth is distinct from c.depth - 1
  or not starts_with(c.text, p.text))
order by 1
