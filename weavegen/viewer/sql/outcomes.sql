-- Outcomes of a job: its traces by result, and what it cost. Figures from ticks, and the successes with their 95%
-- interval by Wilson (1927), are as of the last refresh. A trace that was tried again counts in the costs alone: success and
-- result are those of its retry. `others`: traces with other results than the 10 most frequent ones.
with costs as (
  select sum(sampled_tokens) as sampled_tokens, sum(bytes - shared_bytes) filter (where status = 'ended') as kept_bytes,
    bool_or(harbor_task_id is not null) as harbor
  from traces where job_id = :job
), counted as (
  select {viewer/result} as result, count(*) as traces from traces t
  where job_id = :job and status in ('ended', 'failed', 'cancelled') and {store/last_try} group by 1
), ranked as (
  select *, row_number() over (order by traces desc, result) > 10 as rest from counted
), summed as (
  select sum(total_reward) / nullif(sum(rewarded_ticks), 0) as reward, sum(errors)::bigint as errors,
    sum(kept_tokens)::float / nullif(sum(sampled_tokens), 0) as kept_share, sum(model_seconds) as model_seconds,
    avg(success::int) filter (where last_try)::float as value, count(success) filter (where last_try) as n
  from (
    select k.*, {store/last_try} as last_try from tick_sums k join traces t on t.id = k.trace_id where k.job_id = :job
  ) k
)
select summed.*, value as success, share_low as success_low, share_high as success_high, harbor,
  (sampled_tokens / nullif(kept_bytes / 1e6, 0))::float as tokens_per_kept_megabyte,
  (select json_agg(json_build_object('result', result, 'traces', traces) order by traces desc, result)
    from ranked where not rest) as results,
  (select sum(traces)::bigint from ranked where rest) as others
from summed cross join costs
{viewer/wilson}
