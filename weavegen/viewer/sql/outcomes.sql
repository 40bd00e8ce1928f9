-- What came of a job: its traces by result, and what it cost. What is counted from ticks is as of the last refresh.
with job_traces as (
  select status in ('ended', 'failed', 'cancelled') as over,
    {store/trace_result} as result,
    case when status = 'ended' then bytes - shared_bytes end as kept_bytes, sampled_tokens
  from traces t where job_id = :job
), counted as (
  select sum(total_reward) / nullif(sum(rewarded_ticks), 0) as reward, sum(errors)::bigint as errors,
    sum(kept_tokens)::float / nullif((select sum(sampled_tokens) from job_traces), 0) as kept_share,
    sum(model_seconds) as model_seconds
  from traces t join tick_sums k on k.trace_id = t.id where t.job_id = :job
)
select counted.*,
  (select sum(sampled_tokens) / nullif(sum(kept_bytes) / 1e6, 0) from job_traces)::float as tokens_per_kept_megabyte,
  (select json_agg(json_build_object('result', result, 'traces', traces) order by traces desc, result)
    from (select result, count(*) as traces from job_traces where over group by result) r) as results
from counted
