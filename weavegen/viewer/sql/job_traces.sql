select t.id, t.number, b.name as bootstrap, t.status,
  coalesce(t.ended_because, t.failure_kind || ': ' || t.failure) as because,
  t.ticks, t.blocks, t.bytes, t.sampled_tokens,
  t.candidates::float / nullif(t.written, 0) as candidates_per_block,
  case when jsonb_typeof(t.returned) = 'object' then coalesce(t.returned ->> 'result',
    case t.returned -> 'success' when 'true' then 'success' when 'false' then 'no success' end)
  end as result,
  (select sum(k.reward) from ticks k where k.trace_id = t.id) as reward,
  t.fork_of, t.fork_at, t.retry_of, t.started_at, t.finished_at,
  extract(epoch from coalesce(t.finished_at, now()) - t.started_at)::float as seconds
from traces t join bootstraps b on b.id = t.bootstrap_id
where t.job_id = :job and (cast(:status as text) is null or t.status = :status)
order by t.number limit :limit offset :offset
