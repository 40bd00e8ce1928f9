-- Pairs of candidates. The outcomes of two for one block differ if the worse one failed, is not legal Python, or left
-- fewer of the task's evaluations true when it was tried; those of a failed attempt and the next one always differ.
-- People compared two texts for one block if they call one good and the other bad.
with found as materialized (
  select * from candidate_values
  where trace_id = :trace and candidate_id = any(cast(:chosen_id as bigint[]) || cast(:rejected_id as bigint[]))
)
select r.trace_id, r.index, r.type, r.job, r.model, r.bootstrap, r.tick_reward, r.tick_protected, r.step_id,
  c.candidate_id as chosen_id, r.candidate_id as rejected_id, c.text as chosen, r.text as rejected,
  c.finish_reason as chosen_reason, r.finish_reason as rejected_reason, p.kind,
  p.kind = 'correction' or r.failed or coalesce(not r.compiles, false) or coalesce(r.achieved < c.achieved, false) as outcome_differs,
  case when p.kind = 'candidates' then c.value - r.value end as margin,
  case when p.kind = 'candidates' then c.value end as chosen_value,
  case when p.kind = 'candidates' then r.value end as rejected_value
from unnest(cast(:chosen_id as bigint[]), cast(:rejected_id as bigint[])) k (chosen_id, rejected_id)
join found c on c.candidate_id = k.chosen_id
join found r on r.candidate_id = k.rejected_id
cross join lateral (
  select sum(case when verdict = 'good' then 1 else -1 end) filter (where candidate_id = k.chosen_id) as chosen,
    sum(case when verdict = 'good' then 1 else -1 end) filter (where candidate_id = k.rejected_id) as rejected
  from annotations where candidate_id in (k.chosen_id, k.rejected_id) and verdict is not null
) l
cross join lateral (
  select case
    when c.index <> r.index then 'correction'
    when l.chosen > 0 and l.rejected < 0 then 'annotated' else 'candidates'
  end as kind
) p
