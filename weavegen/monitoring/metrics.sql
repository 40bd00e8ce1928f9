-- name: traces
-- Blocks that a fork shares with its parent are left out.
select status, failure_kind, count(*) as traces, sum(ticks)::bigint as ticks, sum(restarts)::bigint as restarts,
  sum(greatest(0, blocks - coalesce(fork_at, 0)))::bigint as blocks, sum(bytes - shared_bytes)::bigint as bytes,
  sum(sampled_tokens)::bigint as sampled_tokens, sum(candidates)::bigint as candidates,
  sum(written)::bigint as written
from traces group by status, failure_kind

-- name: jobs
select state, count(*) as jobs from jobs group by state

-- name: open_steps
-- Uses the partial index on open steps, of which each running trace has a few.
select s.queue, s.kind, s.status, j.state = 'paused' as paused, count(*) as steps,
  count(*) filter (where s.failure is not null) as retrying,
  count(*) filter (where s.lease_until < clock_timestamp()) as expired,
  extract(epoch from clock_timestamp() - min(s.ready_at))::double precision as oldest
from steps s join traces t on t.id = s.trace_id join jobs j on j.id = t.job_id
where s.status in ('ready', 'running')
group by s.queue, s.kind, s.status, j.state = 'paused'

-- name: steps
select kind, sum(steps)::bigint as steps, sum(retried)::bigint as retried, sum(failed)::bigint as failed,
  sum(model_seconds) as model, sum(environment_seconds) as environment, sum(own_seconds) as own,
  sum(waiting_seconds) as waiting
from step_times where kind not in ('work', 'delegate', 'await') group by kind order by kind

-- name: errors
select stage, sum(errors)::bigint as errors from errors_by_stage group by stage order by stage

-- name: penalties
select penalty, sum(penalised)::bigint as penalised from penalty_stats group by penalty order by penalty

-- name: views
select name, seconds_ago, seconds from freshness

-- name: environments
select host, count(*) as environments from environments where closed_at is null group by host

-- name: database
select pg_database_size(current_database()) as bytes

-- name: rows
-- The estimates of autovacuum and analyze: an exact count would read the tables.
select relname as name, n_live_tup as rows from pg_stat_user_tables
where relname in ('traces', 'ticks', 'blocks', 'candidates', 'scores', 'steps', 'model_usage') order by relname
