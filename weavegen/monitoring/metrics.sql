-- Each query is a group of metrics: a column of text is a label, and each column of numbers a metric, which is declared
-- in a comment: `-- gauge NAME: HELP` or `-- counter NAME: HELP`.

-- name: jobs
-- gauge jobs: Jobs by state.
select state, count(j.id) as jobs
from unnest(array['active', 'paused', 'draining']) state left join jobs j using (state) group by state

-- name: traces
-- gauge traces: Traces by status.
select status, count(t.id) as traces
from unnest(array['queued', 'running', 'ended', 'failed', 'cancelled']) status left join traces t using (status)
group by status

-- name: trace_failures
-- counter trace_failures: Failed traces by kind of failure.
select kind, count(t.id) as trace_failures
from (select unnest(array['model', 'environment', 'bootstrap', 'bug'])
      union select coalesce(failure_kind, 'unknown') from traces where status = 'failed') kinds (kind)
left join traces t on t.status = 'failed' and coalesce(t.failure_kind, 'unknown') = kind group by kind

-- name: sums
-- counter blocks: Blocks recorded, here and below without copies in forks.
-- counter trace_bytes: Bytes of rendered trace.
-- counter ticks: Ticks finished, without the bootstraps' first ticks.
-- counter tick_restarts: Ticks that were started over.
-- counter sampled_tokens: Tokens sampled from the model, including rejected candidates.
-- counter candidates: Candidates sampled for blocks, including rejected ones.
-- counter written_blocks: Blocks that were made of a candidate.
select coalesce(sum(greatest(0, blocks - coalesce(fork_at, 0))), 0)::bigint as blocks,
  coalesce(sum(bytes - shared_bytes), 0)::bigint as trace_bytes, coalesce(sum(ticks), 0)::bigint as ticks,
  coalesce(sum(restarts), 0)::bigint as tick_restarts, coalesce(sum(sampled_tokens), 0)::bigint as sampled_tokens,
  coalesce(sum(candidates), 0)::bigint as candidates, coalesce(sum(written), 0)::bigint as written_blocks
from traces

-- name: queues
-- gauge steps_ready: Steps that no worker has taken.
-- gauge steps_retrying: Ready steps that failed before and are tried again.
-- gauge oldest_ready_step_age_seconds: Age of the oldest ready step; 0: there is none.
with ready as (
  select s.queue, count(*) as steps, count(s.failure) as retrying, min(s.ready_at) as oldest
  from steps s join traces t on t.id = s.trace_id join jobs j on j.id = t.job_id
  where s.status = 'ready' and j.state <> 'paused' group by s.queue
)
select queue, coalesce(steps, 0) as steps_ready, coalesce(retrying, 0) as steps_retrying,
  coalesce(extract(epoch from clock_timestamp() - oldest), 0)::double precision as oldest_ready_step_age_seconds
from (select unnest(array['control', 'sample', 'score', 'lint', 'execute'])
      union select queue from steps where status in ('ready', 'running')
      union select 'execute.' || host from environments where closed_at is null) queues (queue)
left join ready using (queue)

-- name: kinds
-- gauge steps_running: Steps that a worker holds, or that wait for others.
select kinds.kind, count(s.id) as steps_running
from (select unnest(array['sample', 'score', 'lint', 'retrieve', 'execute', 'consult'])
      union select kind from steps where status = 'running') kinds (kind)
left join steps s on s.kind = kinds.kind and s.status = 'running' group by kinds.kind

-- name: waiting
-- gauge steps_paused: Ready steps of paused jobs.
-- gauge steps_expired: Running steps whose lease has expired: their worker does not answer.
select count(*) filter (where s.status = 'ready' and j.state = 'paused') as steps_paused,
  count(*) filter (where s.status = 'running' and s.lease_until < clock_timestamp()) as steps_expired
from steps s join traces t on t.id = s.trace_id join jobs j on j.id = t.job_id
where s.status in ('ready', 'running')

-- name: environments
-- gauge environments_open: Live Python processes of traces.
select host, count(*) as environments_open from environments where closed_at is null group by host

-- name: steps
-- counter steps: Steps of the journal. As of the last refresh.
-- counter step_retries: Steps that were taken more than once. As of the last refresh.
-- counter step_failures: Steps that failed for good. As of the last refresh.
-- counter model_seconds: Seconds that steps waited for model servers. As of the last refresh.
-- counter environment_seconds: Seconds that steps waited for environments. As of the last refresh.
-- counter own_seconds: Seconds of steps without these two. As of the last refresh.
-- counter waiting_seconds: Seconds between a step's becoming ready and its claim. As of the last refresh.
select kind, sum(steps)::bigint as steps, sum(retried)::bigint as step_retries, sum(failed)::bigint as step_failures,
  coalesce(sum(model_seconds), 0) as model_seconds, coalesce(sum(environment_seconds), 0) as environment_seconds,
  coalesce(sum(own_seconds), 0) as own_seconds, coalesce(sum(waiting_seconds), 0) as waiting_seconds
from step_times where kind not in ('work', 'delegate', 'await') group by kind order by kind

-- name: errors
-- counter errors: Errors by stage. As of the last refresh.
select stage, sum(errors)::bigint as errors from errors_by_stage group by stage order by stage

-- name: penalties
-- counter penalised_candidates: Candidates by the penalty that linting gave. As of the last refresh.
select penalty, sum(penalised)::bigint as penalised_candidates from penalty_stats group by penalty order by penalty

-- name: views
-- gauge view_age_seconds: Time since the last refresh of a materialised view.
-- gauge view_refresh_seconds: Duration of that refresh.
select name as view, seconds_ago as view_age_seconds, seconds as view_refresh_seconds from freshness

-- name: database
-- gauge database_size_bytes: Size of the database.
select pg_database_size(current_database()) as database_size_bytes

-- name: rows
-- gauge table_rows: Rows of the large tables, as PostgreSQL estimates.
select relname::text as table, n_live_tup as table_rows from pg_stat_user_tables
where relname in ('traces', 'ticks', 'blocks', 'candidates', 'scores', 'steps', 'model_usage') order by relname
