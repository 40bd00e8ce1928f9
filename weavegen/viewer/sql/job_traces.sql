-- The traces of a job that pass all filters that are not null, by the column {order}. Filters and orders that come from
-- ticks are as of the last refresh of tick_sums; the rewards shown are current. A trace's reward is the mean of its own
-- ticks, as in trace_stats. The filter by result finds the traces that outcomes.sql counts.
with known as (
  select t.id, t.number, b.name as bootstrap, t.status, {viewer/result} as result, t.ticks, t.blocks, t.bytes,
    t.sampled_tokens as tokens, t.candidates::float / nullif(t.written, 0) as candidates_per_block,
    extract(epoch from coalesce(t.finished_at, now()) - t.started_at)::float as seconds,
    k.reward, k.errors, k.backtracks, {store/last_try} as last_try
  from traces t join bootstraps b on b.id = t.bootstrap_id left join tick_sums k on k.trace_id = t.id
  where t.job_id = :job
), chosen as (
  select * from known
  where (cast(:status as text) is null or status = :status)
    and (cast(:bootstrap as text) is null or bootstrap = :bootstrap)
    and (cast(:result as text) is null or last_try and status in ('ended', 'failed', 'cancelled')
      and (result = :result or :result = 'none' and result is null))
    and (cast(:reward_min as float) is null or reward >= :reward_min)
    and (cast(:reward_max as float) is null or reward <= :reward_max)
    and (cast(:errors_min as float) is null or errors >= :errors_min)
    and (cast(:errors_max as float) is null or errors <= :errors_max)
    and (cast(:blocks_min as float) is null or blocks >= :blocks_min)
    and (cast(:blocks_max as float) is null or blocks <= :blocks_max)
    and (cast(:tag as text) is null or exists (
      select from blocks b where b.trace_id = known.id and :tag = any(b.tags)
    ) or exists (
      select from annotations a where a.trace_id = known.id and (:tag = any(a.labels) or a.verdict = :tag)
    ))
  order by {order} nulls last, number limit :limit offset :offset
)
select c.id, c.number, c.bootstrap, c.status, c.result, c.ticks, c.blocks, c.bytes, c.tokens, c.candidates_per_block,
  c.seconds, c.errors, c.backtracks, t.fork_of, t.fork_at, t.retry_of, t.started_at, t.finished_at,
  coalesce(t.ended_because, t.failure_kind || ': ' || t.failure) as because,
  (select avg(k.reward) from ticks k where k.trace_id = t.id and k.number > 0
    and {viewer/own_tick}) as reward
from chosen c join traces t on t.id = c.id
order by {order} nulls last, number
