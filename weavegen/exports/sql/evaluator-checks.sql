-- In these traces: how many texts have a verdict of a person and an answer of the evaluator, about how many executed
-- blocks the evaluator was asked whether they run, and for how many of each it was right, with a probability of at least
-- 0.5 as a yes.
select * from (
  select count(*) as people, count(*) filter (where (predicted >= 0.5) = (verdict = 'good')) as people_agree
  from annotated_candidates
  where trace_id = any(cast(:traces as bigint[])) and verdict is not null and predicted is not null
) annotated, (
  select count(*) as executed,
    count(*) filter (where (probability >= 0.5) = answer) as executed_agree
  from calibration_pairs
  where trace_id = any(cast(:traces as bigint[])) and campaign is null and truth = 'ran' and exact
    and probability is not null
) outcomes
