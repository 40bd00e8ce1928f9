-- The candidates of each step that sampled some: how many, the last position, how many have a verdict.
sampled as (
  select c.step_id, c.trace_id, count(*) as n, max(c.position) as last, count(p.candidate_id) as linted
  from candidates c join traces t on t.id = c.trace_id left join penalties p on p.candidate_id = c.id
  where {scope} group by c.step_id, c.trace_id
)
