create view yield_by_job as
select
  job_id, job, agent, model, count(*) as traces,
  count(*) filter (where trace_status = 'queued') as queued,
  count(*) filter (where trace_status = 'running') as running,
  count(*) filter (where trace_status = 'ended') as ended,
  count(*) filter (where trace_status = 'failed') as failed,
  count(*) filter (where trace_status = 'cancelled') as cancelled,
  sum(own_blocks)::bigint as blocks, sum(own_bytes)::bigint as bytes,
  (coalesce(sum(own_bytes) filter (where trace_status = 'ended'), 0) / 1e6)::double precision as kept_megabytes,
  sum(sampled_tokens)::bigint as sampled_tokens, sum(kept_tokens)::bigint as kept_tokens,
  round(sum(kept_tokens) / nullif(sum(tokens_of_ticks), 0), 4)::double precision as kept_share,
  (sum(sampled_tokens) / nullif(sum(own_bytes) filter (where trace_status = 'ended') / 1e6, 0))::double precision
    as tokens_per_kept_megabyte,
  (sum(reward * rewarded_ticks) / nullif(sum(rewarded_ticks), 0))::double precision as reward,
  sum(not_tried)::bigint as not_tried,
  sum(model_seconds) as model_seconds, sum(environment_seconds) as environment_seconds,
  sum(own_seconds) as own_seconds, sum(waiting_seconds) as waiting_seconds,
  extract(epoch from max(coalesce(finished_at, case when started_at is not null then now() end)) - min(started_at))
    ::double precision as seconds,
  count(distinct server) as servers
from trace_stats
left join (
  select trace_id, sampled_tokens as tokens_of_ticks from tick_sums  -- as old as kept_tokens
) k using (trace_id)
group by job_id, job, agent, model;

comment on view yield_by_job is
  'A row for each job: what it wrote and what that cost. Kept means: of traces that ended. Counts from ticks are as of the last refresh.';
comment on column yield_by_job.job_id is 'jobs.id.';
comment on column yield_by_job.job is 'Its name.';
comment on column yield_by_job.agent is 'The program that wrote the traces: weave, planning, ...';
comment on column yield_by_job.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column yield_by_job.traces is 'Number of its traces.';
comment on column yield_by_job.queued is 'Queued traces.';
comment on column yield_by_job.running is 'Running traces.';
comment on column yield_by_job.ended is 'Ended traces.';
comment on column yield_by_job.failed is 'Failed traces.';
comment on column yield_by_job.cancelled is 'Cancelled traces.';
comment on column yield_by_job.blocks is
  'Recorded blocks of all its traces. Copies in forks do not count, here and below.';
comment on column yield_by_job.bytes is 'Bytes of the rendered traces.';
comment on column yield_by_job.kept_megabytes is 'Millions of bytes of the rendered traces that ended.';
comment on column yield_by_job.sampled_tokens is
  'Tokens sampled for all its traces, those of rejected candidates included.';
comment on column yield_by_job.kept_tokens is 'Tokens of the candidates that became blocks, in all its traces.';
comment on column yield_by_job.kept_share is 'kept_tokens as a share of the tokens of all candidates, both as of the last refresh.';
comment on column yield_by_job.tokens_per_kept_megabyte is 'Sampled tokens for each kept megabyte.';
comment on column yield_by_job.reward is 'Mean reward of its ticks, without the bootstraps''.';
comment on column yield_by_job.not_tried is
  'Blocks whose candidates could not be tried, so that the evaluator alone chose; an event says why.';
comment on column yield_by_job.model_seconds is
  'Seconds that steps waited for model servers. Steps wait at the same time, here and below.';
comment on column yield_by_job.environment_seconds is 'Seconds that steps waited for environments.';
comment on column yield_by_job.own_seconds is 'Seconds of steps that were spent on neither: weavegen''s own work.';
comment on column yield_by_job.waiting_seconds is
  'Seconds from when steps were ready to their last claim, with earlier attempts and with pauses.';
comment on column yield_by_job.seconds is
  'Seconds from its first trace''s start to its last trace''s end, or to now.';
comment on column yield_by_job.servers is 'Number of model servers that its traces used.';
