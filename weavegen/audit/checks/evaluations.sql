-- proves: the recorded evaluations and grounded labels equal those in the results of their steps
-- subject: executions
select s.trace_id, 'step ' || s.id, case
    when e.n <> e.expected then format('its result has %s evaluations, but %s are recorded', e.expected, e.n)
    when l.n <> l.expected then format('its result has %s grounded labels, but %s are recorded', l.expected, l.n)
    when e.other > 0 then format('%s of its evaluations differ from what is recorded', e.other)
    else format('%s of its grounded labels differ from what is recorded', l.other)
  end
from steps s join traces t on t.id = s.trace_id
cross join lateral (
  select count(*) as n, coalesce(jsonb_array_length(s.result -> 'evaluations'), 0) as expected,
    count(*) filter (where e.title is distinct from r.item ->> 'title'
      or e.scope is distinct from r.item ->> 'scope'
      or e.value is distinct from nullif(r.item -> 'value', 'null')
      or e.protected is distinct from coalesce((r.item ->> 'protected')::boolean, false)
      or e.cause is distinct from r.item ->> 'cause'
      or (e.error is null) <> (r.item ->> 'error' is null)) as other
  from evaluations e
  cross join lateral (select s.result -> 'evaluations' -> e.position::int as item) r
  where e.step_id = s.id
) e
cross join lateral (
  select count(*) as n, coalesce(jsonb_array_length(s.result -> 'assertions'), 0) as expected,
    count(*) filter (where l.question is distinct from r.item ->> 'question'
      or l.answer is distinct from (r.item ->> 'answer')::boolean) as other
  from grounded_labels l
  cross join lateral (select s.result -> 'assertions' -> l.position::int as item) r
  where l.step_id = s.id
) l
where {scope} and s.kind = 'execute'
  and (e.n <> e.expected or l.n <> l.expected or e.other > 0 or l.other > 0)
order by 1, s.id
