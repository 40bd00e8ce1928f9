-- The traces of a job that pass all filters that are not null, by the column {order}. Errors and backtracks are as of the
-- last refresh of tick_stats. The reward is the mean of the trace's own ticks, as in trace_stats.
select * from (
  select t.id, t.number, b.name as bootstrap, t.status,
    coalesce(t.ended_because, t.failure_kind || ': ' || t.failure) as because,
    t.ticks, t.blocks, t.bytes, t.sampled_tokens as tokens,
    t.candidates::float / nullif(t.written, 0) as candidates_per_block,
    {store/trace_result} as result,
    (select avg(k.reward) from ticks k where k.trace_id = t.id and k.number > 0 and not exists (
      select from ticks n where n.trace_id = t.id and n.number = k.number + 1 and n.first_block <= t.fork_at
    )) as reward,
    (select sum(k.errors)::bigint from tick_stats k where k.trace_id = t.id) as errors,
    (select sum(k.backtracks)::bigint from tick_stats k where k.trace_id = t.id) as backtracks,
    t.fork_of, t.fork_at, t.retry_of, t.started_at, t.finished_at,
    extract(epoch from coalesce(t.finished_at, now()) - t.started_at)::float as seconds
  from traces t join bootstraps b on b.id = t.bootstrap_id where t.job_id = :job
) t
where (cast(:status as text) is null or status = :status)
  and (cast(:bootstrap as text) is null or bootstrap = :bootstrap)
  and (cast(:result as text) is null or result = :result or result is null and :result = 'none')
  and (cast(:reward_min as float) is null or reward >= :reward_min)
  and (cast(:reward_max as float) is null or reward <= :reward_max)
  and (cast(:errors_min as float) is null or errors >= :errors_min)
  and (cast(:errors_max as float) is null or errors <= :errors_max)
  and (cast(:blocks_min as float) is null or blocks >= :blocks_min)
  and (cast(:blocks_max as float) is null or blocks <= :blocks_max)
  and (cast(:tag as text) is null or exists (
    select from blocks b where b.trace_id = t.id and :tag = any(b.tags)
  ) or exists (
    select from annotations a where a.trace_id = t.id and (:tag = any(a.labels) or a.verdict = :tag)
  ))
order by {order} nulls last, number limit :limit offset :offset
