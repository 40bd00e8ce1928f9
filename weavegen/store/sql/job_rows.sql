-- Jobs with sums over their traces, newest first.
-- Settings that end a trace (the budgets) count only where they are numbers: another version may have written others.
with listed as (
  select j.*, coalesce(
    (select r.settings from job_settings r where r.job_id = j.id order by r.revision desc limit 1), j.settings
  ) as newest
  from jobs j where j.id = any(cast(:jobs as bigint[]))
), budgeted as (
  select l.*,
    case when jsonb_typeof(l.newest -> 'ticks') = 'number'
      then nullif((l.newest -> 'ticks')::float, 0) end as max_ticks,
    case when jsonb_typeof(l.newest -> 'blocks') = 'number'
      then nullif((l.newest -> 'blocks')::float, 0) end as max_blocks,
    case when jsonb_typeof(l.newest -> 'until_bytes') = 'number'
      then nullif((l.newest -> 'until_bytes')::float, 0) end as max_bytes,
    case when jsonb_typeof(l.newest -> 'sampled_tokens') = 'number'
      then nullif((l.newest -> 'sampled_tokens')::float, 0) end as max_sampled_tokens
  from listed l
), limited as (
  select *, coalesce(max_ticks, max_blocks, max_bytes, max_sampled_tokens) is not null as has_budget from budgeted
)
select j.id, j.name, s.queued, s.running, s.ended, s.failed, s.cancelled, s.blocks, s.bytes, s.sampled_tokens,
  s.candidates_per_block, s.seconds, j.state, j.paused_at, j.pause_reason, j.revision, j.agent, j.model, j.enqueued_by as "user",
  j.called_by,
  (s.ended + s.failed + s.cancelled + coalesce(
    s.spent, case when s.running > 0 and s.usual_blocks > 0 then
      s.running * least(0.99, s.running_blocks / s.running / s.usual_blocks) end, 0
  )) / (s.queued + s.running + s.ended + s.failed + s.cancelled) as progress,
  j.paused_seconds
from limited j cross join lateral (
  select
    count(*) filter (where t.status = 'queued') queued,
    count(*) filter (where t.status = 'running') running,
    count(*) filter (where t.status = 'ended') ended,
    count(*) filter (where t.status = 'failed') failed,
    count(*) filter (where t.status = 'cancelled') cancelled,
    sum(greatest(0, t.blocks - coalesce(t.fork_at, 0)))::bigint blocks,
    sum(t.bytes - t.shared_bytes)::bigint bytes,
    sum(t.sampled_tokens)::bigint sampled_tokens,
    round(sum(t.candidates) / nullif(sum(t.written), 0), 2)::double precision candidates_per_block,
    coalesce(extract(epoch from (
      case when bool_or(t.status in ('queued', 'running')) then now() else max(t.finished_at) end
    ) - min(t.started_at)), 0)::double precision seconds,
    sum(least(0.99, greatest(
      t.ticks / j.max_ticks, t.blocks / j.max_blocks, t.bytes / j.max_bytes,
      t.sampled_tokens / j.max_sampled_tokens
    ))) filter (where t.status = 'running' and j.has_budget) spent,
    sum(t.blocks) filter (where t.status = 'running')::double precision running_blocks,
    avg(t.blocks) filter (where t.status = 'ended')::double precision usual_blocks
  from traces t where t.job_id = j.id
) s order by j.id desc
