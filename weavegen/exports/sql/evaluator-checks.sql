-- In these traces: how many texts have a verdict of a person and an answer of the evaluator, how many executed blocks
-- have an answer of the evaluator, and for how many of each it was right, with a probability of at least 0.5 as a yes.
select * from (
  select count(*) as people, count(*) filter (where (predicted >= 0.5) = (verdict = 'good')) as people_agree
  from annotated_candidates
  where trace_id = any(cast(:traces as bigint[])) and verdict is not null and predicted is not null
) annotated, (
  select count(*) as executed,
    count(*) filter (where (case when b.answer then b.probability else 1 - b.probability end >= 0.5) = b.ran) as executed_agree
  from blocks b join traces t on t.id = b.trace_id
  where b.trace_id = any(cast(:traces as bigint[])) and b.index >= coalesce(t.fork_at, 0)
    and b.ran is not null and b.probability is not null and b.question is not null
) outcomes
