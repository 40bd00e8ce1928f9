-- Whether the job's data is fit for training: a row per measure. `fine`: whether the value is within the bound that
-- `wanted` names; null: there is nothing to measure. docs/report.md says what each bound is for. Of a job with more than 500
-- traces, 500 are examined. They are an array, because PostgreSQL moves a condition on it into the views.
with own as materialized (
  select id from traces where job_id = :job order by md5(id::text) limit 500
), pairs as (
  select avg(outcome_differs::int)::float as differ, count(*) as n,
    percentile_cont(0.5) within group (order by margin) filter (where not outcome_differs) as margin,
    count(*) filter (where not outcome_differs) as alike
  from preference_pairs
  where trace_id = any(array(select id from own)) and kind = 'candidates'
), kept as (
  select 1 - count(distinct md5(body)) / nullif(count(*), 0)::float as repeated, count(*) as n,
    avg((ran is true)::int)::float as executed
  from sft_examples where trace_id = any(array(select id from own))
), labels as (
  select question, count(*) as n, least(avg(label::int), avg(1 - label::int))::float as rarer
  from verifier_labels
  where trace_id = any(array(select id from own)) and source in ('ran', 'tried', 'evaluated')
  group by question having count(*) >= 20
), judge as (
  select sum(labels * abs(predicted - observed)) / sum(labels) as error, sum(labels)::bigint as n
  from evaluator_calibration where job_id = :job
), rewards as (
  select sum(protected_ticks) / nullif(sum(rewarded_ticks), 0)::float as protected, sum(rewarded_ticks)::bigint as n
  from tick_sums where job_id = :job
)
select measure, value, n, wanted, fine
from (
  select 1 as position, 'preference pairs: share whose outcomes differ' as measure, differ as value, n,
    'at least 0.5' as wanted, differ >= 0.5 as fine from pairs
  union all
  select 2, 'margin of the other pairs, log odds, median', margin, alike, 'at least 1', margin >= 1 from pairs
  union all
  select 3, 'examples (sft): share that repeats another''s text', repeated, n, 'at most 0.2', repeated <= 0.2 from kept
  union all
  select 4, 'examples (sft): share that was executed and ran', executed, n, 'at least 0.2', executed >= 0.2 from kept
  union all
  select 5, 'labels (verifier): share of the rarer answer, ' || question, rarer, n, 'at least 0.1', rarer >= 0.1 from labels
  union all
  select 6, 'evaluator: calibration error of its probabilities', error, n, 'at most 0.1', error <= 0.1 from judge
  union all
  select 7, 'rewards: share that only protected evaluations give', protected, n, '1', protected = 1 from rewards
) measures
order by position, measure
