-- proves: a done score step has an answer to each question about each text, and other steps have none
-- subject: scorings
select s.trace_id, 'step ' || s.id, format('it is %s and asked %s questions; %s answers are recorded, %s of '
    || 'them about its candidates', s.status, s.expected, coalesce(a.n, 0), coalesce(a.own, 0))
from (
  select s.id, s.trace_id, s.status, f.id as sample_id, case
    when s.kind <> 'score' or s.status <> 'done' or s.copy_of is not null then 0
    else jsonb_array_length(s.request -> 'questions') * case when s.request ->> 'sample' is null
      then jsonb_array_length(s.request -> 'texts') else (f.request ->> 'n')::int end
  end as expected
  from steps s join traces t on t.id = s.trace_id
  left join steps f on f.trace_id = s.trace_id and f.tick = s.tick and f.run = s.run and f.kind = 'sample'
    and f.ordinal = coalesce(s.request ->> 'sample', s.request -> 'candidate' ->> 0)::bigint
  where {scope} and s.kind = 'score'
) s left join (
  select a.step_id, a.trace_id, c.step_id as sample_id, count(*) as n, count(a.candidate_id) as own
  from scores a join traces t on t.id = a.trace_id left join candidates c on c.id = a.candidate_id
  where {scope} group by 1, 2, 3
) a on a.step_id = s.id and a.trace_id = s.trace_id and a.sample_id is not distinct from s.sample_id
where s.expected is distinct from coalesce(a.n, 0)
  or coalesce(a.own, 0) <> case when s.sample_id is null then 0 else s.expected end
union all
select a.trace_id, 'score ' || a.id, format('its step %s asked no questions', s.id)
from scores a join traces t on t.id = a.trace_id join steps s on s.id = a.step_id
where {scope} and (s.kind <> 'score' or s.trace_id <> a.trace_id)
order by 1
