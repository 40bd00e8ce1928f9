-- proves: blocks whose execution had another result than their trial: another value, another exception, or none
-- subject: blocks
-- findings: remarks
select b.trace_id, 'block ' || b.index, format('candidate %s %s when it was tried, and %s as the block', r.candidate_id,
    case when r.ran then 'returned ' || left(x.tried::text, 200) else 'raised ' || r.exception end,
    case when b.ran then 'returned ' || left(x.executed::text, 200) else 'raised ' || b.exception end)
from blocks b join traces t on t.id = b.trace_id
join trials r on r.candidate_id = b.candidate_id and r.trace_id = b.trace_id
join steps s on s.id = b.executed_by
cross join lateral (
  select coalesce(r.value, 'null') as tried, coalesce(s.result -> 'value', 'null') as executed
) x
where {scope} and r.ran is not null and b.ran is not null
  and (r.exception is distinct from b.exception or b.ran and x.tried <> x.executed)
order by 1, b.index
