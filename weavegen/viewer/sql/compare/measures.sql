-- Measures of two jobs, over their traces that started and are over, for each job in all and for each of its bootstraps.
-- `value` is sum(part) / sum(whole). [low, high] is its 95% interval: for a share of traces by Wilson (1927); else by the
-- variance of a ratio of sums (Cochran, Sampling Techniques, 1977, 6.4), with the traces as the independent units: null
-- for a single trace. Traces that were cancelled before they started say nothing about the model, and do not count. Traces
-- that were tried again count, but for success and results, which are those of their retries.
with finished as (
  select t.*, f.name as bootstrap, k.*,
    {store/trace_result} as result,
    {store/known_success} as success,
    {store/last_try} as last_try
  from traces t join bootstraps f on f.id = t.bootstrap_id
  cross join lateral (
    select avg(tick_reward) filter (where tick > 0) as reward, sum(errors) as errors, sum(backtracks) as backtracks,
      sum(blocks) as own_blocks, sum(kept_tokens) as kept, sum(s.sampled_tokens) as sampled, sum(model_seconds) as model,
      count(*) filter (where action_ran) as acted, count(action_ran) as tried, avg(action_score) as score
    from tick_stats s where s.trace_id = t.id
  ) k
  where t.job_id in (:a, :b) and t.status in ('ended', 'failed', 'cancelled') and t.started_at is not null
), frequent as (
  select result from finished where result is not null and last_try
  group by result order by count(*) desc, result limit 10
), named as (
  select o.job_id, o.bootstrap, case when o.result is not null then coalesce(f.result, 'others') end as result
  from finished o left join frequent f on f.result = o.result where o.last_try
), results as (
  select distinct result from named where result is not null
), measured as (
  select o.job_id, o.bootstrap, m.*
  from finished o cross join lateral (values
    (1, 'success', 'share', o.success::int::float, case when o.success is not null and o.last_try then 1.0 end),
    (3, 'ended', 'share', (o.status = 'ended')::int, 1),
    (4, 'reward of a trace', 'number', o.reward, case when o.reward is not null then 1 end),
    (5, 'ticks with an action that ran', 'percent', o.acted, o.tried),
    (6, 'errors in 100 blocks', 'number', 100 * o.errors::float, o.own_blocks::float),
    (7, 'backtracks in 100 blocks', 'number', 100 * o.backtracks::float, o.own_blocks::float),
    (8, 'mean score of actions, log odds', 'number', o.score, case when o.score is not null then 1 end),
    (9, 'yield: text of a trace that ended, kB', 'number',
      case when o.status = 'ended' then (o.bytes - o.shared_bytes) / 1e3 else 0 end, 1),
    (10, 'tokens kept', 'percent', o.kept::float, o.sampled::float),
    (11, 'candidates for a block', 'number', o.candidates, o.written),
    (12, 'cost: sampled tokens for a trace', 'number', o.sampled_tokens, 1),
    (13, 'cost: sampled tokens for a kept kB', 'number', o.sampled_tokens,
      case when o.status = 'ended' then (o.bytes - o.shared_bytes) / 1e3 else 0 end),
    (14, 'cost: model seconds for a trace', 'number', o.model, 1)
  ) m (position, measure, kind, part, whole)
  union all
  select o.job_id, o.bootstrap, 2, r.result, 'share', (o.result is not distinct from r.result)::int, 1
  from named o cross join results r
), summed as (
  select m.*, sum(part) over w / nullif(sum(whole) over w, 0) as value, sum(whole) over w as wholes,
    count(*) over w as n
  from (
    select *, null as file from measured union all select *, bootstrap from measured where position <= 4
  ) m
  where part is not null and whole is not null
  window w as (partition by position, measure, job_id, file)
), spread as (
  select position, measure, kind, job_id, file, value, n,
    sqrt(n / nullif(n - 1, 0)::float * sum((part - value * whole) ^ 2)) / nullif(wholes, 0) as error
  from summed where value is not null group by position, measure, kind, job_id, file, value, wholes, n
)
select to_char(position, '00') || ' ' || measure as position_and_name, measure, kind, job_id, file as bootstrap, value, n,
  case
    when kind = 'share' then share_low
    when kind = 'percent' and value < z * error then 0 else value - z * error
  end as low,
  case
    when kind = 'share' then share_high
    when kind = 'percent' and value + z * error > 1 then 1 else value + z * error
  end as high
from spread
cross join (select 1.959964 as z) c
{viewer/wilson}
order by file nulls first, position, measure, job_id
