-- Outcomes of a job: its traces by result, and what it cost. Figures from ticks, and the successes with their 95%
-- interval by Wilson (1927), are as of the last refresh. For traces of a task without evaluations, success is unknown.
with counted as (
  select status in ('ended', 'failed', 'cancelled') as over, {store/trace_result} as result, count(*) as traces,
    sum(sampled_tokens) as sampled_tokens, sum(bytes - shared_bytes) filter (where status = 'ended') as kept_bytes
  from traces t where job_id = :job group by over, result
), summed as (
  select sum(total_reward) / nullif(sum(rewarded_ticks), 0) as reward, sum(errors)::bigint as errors,
    sum(kept_tokens)::float / nullif(sum(sampled_tokens), 0) as kept_share,
    sum(model_seconds) as model_seconds, avg(success::int) filter (where evaluated)::float as value,
    count(success) filter (where evaluated) as n
  from (
    select k.*, sum(k.task_evaluations) over (partition by t.bootstrap_id) > 0 as evaluated
    from tick_sums k join traces t on t.id = k.trace_id where k.job_id = :job
  ) k
)
select summed.*, value as success, share_low as success_low, share_high as success_high,
  (select sum(sampled_tokens) / nullif(sum(kept_bytes) / 1e6, 0) from counted)::float as tokens_per_kept_megabyte,
  (select json_agg(json_build_object('result', result, 'traces', traces) order by traces desc, result)
    from counted where over) as results
from summed
{viewer/wilson}
