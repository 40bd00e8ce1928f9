-- proves: every candidate that a done step tried has its outcome, and a candidate that failed was not preferred to one
--   that ran
-- subject: steps
select s.trace_id, 'step ' || s.id, format('it tried %s candidates, of which %s have an outcome',
    jsonb_array_length(s.result -> 'trials'), count(r.candidate_id))
from steps s join traces t on t.id = s.trace_id left join trials r on r.step_id = s.id
where {scope} and s.kind = 'execute' and s.request ->> 'op' = 'try' and s.status = 'done'
  and s.copy_of is null
group by s.id
having count(r.candidate_id) <> coalesce(jsonb_array_length(s.result -> 'trials'), 0)
union all
select r.trace_id, 'step ' || r.step_id, format('it tried candidate %s, which is of another trace', r.candidate_id)
from trials r join traces t on t.id = r.trace_id join candidates c on c.id = r.candidate_id
join steps s on s.id = r.step_id
where {scope} and (c.trace_id <> r.trace_id or s.trace_id <> r.trace_id)
union all
select b.trace_id, 'block ' || b.index, format('candidate %s failed when it was tried, and another one ran',
    b.candidate_id)
from blocks b join traces t on t.id = b.trace_id join trials r on r.candidate_id = b.candidate_id
where {scope} and r.ran is false
  and exists (select from trials o where o.step_id = r.step_id and o.ran)
order by 1, 2
