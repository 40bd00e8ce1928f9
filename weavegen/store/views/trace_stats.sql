create view trace_stats as
select
  t.id as trace_id, t.job_id, j.name as job, j.agent, j.model, f.name as bootstrap, t.number,
  t.status as trace_status, t.ended_because, t.failure_kind, t.failure, t.ticks, t.blocks, t.bytes,
  greatest(0, t.blocks - coalesce(t.fork_at, 0)) as own_blocks, t.bytes - t.shared_bytes as own_bytes, t.sampled_tokens,
  k.kept_tokens, round(k.kept_tokens::numeric / nullif(k.sampled_tokens, 0), 4)::double precision as kept_share,
  t.candidates, t.written,
  round(t.candidates::numeric / nullif(t.written, 0), 4)::double precision as candidates_per_block,
  k.reward, k.rewarded_ticks, k.protected_ticks, k.not_evaluated, k.total_reward, k.actions, k.errors, k.debugs, k.backtracks, k.illegal, k.not_tried, k.ran_share,
  coalesce(k.loops, 0) as loops, coalesce(k.longest_loop, 0) as longest_loop, k.steps, k.model_seconds,
  k.environment_seconds, k.own_seconds, k.waiting_seconds,
  extract(epoch from coalesce(t.finished_at, now()) - t.started_at)::double precision as seconds, t.restarts,
  t.retry_of, t.fork_of, t.fork_at,
  {store/trace_result} as result, t.server,
  t.started_at, t.finished_at, k.success
from traces t
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
left join tick_sums k on k.trace_id = t.id;

comment on view trace_stats is
  'A row for each trace: sizes, rewards, tokens, errors, loops, durations. Counts from ticks are as of the last refresh.';
comment on column trace_stats.trace_id is 'traces.id.';
comment on column trace_stats.job_id is 'Its job.';
comment on column trace_stats.job is 'Name of the job.';
comment on column trace_stats.agent is 'The program that wrote the trace: weave, planning, ...';
comment on column trace_stats.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column trace_stats.bootstrap is 'File name of the bootstrap.';
comment on column trace_stats.number is 'Position in its job, from 1.';
comment on column trace_stats.trace_status is 'queued, running, ended, failed or cancelled.';
comment on column trace_stats.ended_because is
  'returned, or the budget that was spent: ticks, blocks, bytes, time, ...';
comment on column trace_stats.failure_kind is 'model, environment, bootstrap or bug, where it failed.';
comment on column trace_stats.failure is 'Why it failed, in one line.';
comment on column trace_stats.ticks is 'Finished ticks, without the bootstrap''s.';
comment on column trace_stats.blocks is 'Recorded blocks, with a fork''s copies.';
comment on column trace_stats.bytes is 'Bytes of the rendered trace, with a fork''s copies.';
comment on column trace_stats.own_blocks is 'Recorded blocks without copies: of a fork, those from fork_at on.';
comment on column trace_stats.own_bytes is 'Bytes of the rendered trace without copies.';
comment on column trace_stats.sampled_tokens is
  'Tokens sampled from the model, those of rejected candidates included.';
comment on column trace_stats.kept_tokens is 'Tokens of the candidates that became blocks.';
comment on column trace_stats.kept_share is 'kept_tokens as a share of the tokens of all candidates.';
comment on column trace_stats.candidates is 'Candidates sampled for blocks, rejected ones included.';
comment on column trace_stats.written is 'Blocks made of a candidate.';
comment on column trace_stats.candidates_per_block is 'Candidates for each block made of one.';
comment on column trace_stats.reward is 'Mean reward of its ticks, without the bootstrap''s.';
comment on column trace_stats.rewarded_ticks is
  'Number of ticks with a reward. Of a fork only its own ticks count, here and below.';
comment on column trace_stats.protected_ticks is
  'Of these, ticks whose reward counts protected evaluations only, which the agent can''t forge.';
comment on column trace_stats.not_evaluated is
  'Protected evaluations that rewards leave out, because they were not evaluated.';
comment on column trace_stats.total_reward is 'Sum of the rewards.';
comment on column trace_stats.actions is 'Action blocks.';
comment on column trace_stats.errors is 'Error blocks.';
comment on column trace_stats.debugs is 'Debug blocks.';
comment on column trace_stats.backtracks is 'Backtrack blocks.';
comment on column trace_stats.illegal is 'Blocks that are not legal Python.';
comment on column trace_stats.not_tried is
  'Blocks whose candidates could not be tried, so that the evaluator alone chose; an event says why.';
comment on column trace_stats.ran_share is
  'Share of the ticks with an executed action in which an action ran without errors.';
comment on column trace_stats.loops is 'How often a tick repeated the tick before, after one that did not.';
comment on column trace_stats.longest_loop is
  'Highest number of ticks in a row that repeated the tick before: equal actions and outcomes.';
comment on column trace_stats.steps is 'Steps that workers did; none that only waits, and no copies of a fork.';
comment on column trace_stats.model_seconds is 'Seconds that its steps waited for the model server.';
comment on column trace_stats.environment_seconds is 'Seconds that its steps waited for the environment.';
comment on column trace_stats.own_seconds is 'Seconds of its steps that were spent on neither: weavegen''s own work.';
comment on column trace_stats.waiting_seconds is
  'Seconds from when its steps were ready to their last claim, with earlier attempts and with pauses.';
comment on column trace_stats.seconds is 'Seconds from its start to its end, or to now.';
comment on column trace_stats.restarts is 'Number of ticks that were started over.';
comment on column trace_stats.retry_of is 'The trace that it is a retry of.';
comment on column trace_stats.fork_of is 'The trace whose first blocks it shares; null: no fork.';
comment on column trace_stats.fork_at is 'Of a fork: blocks below this index are copies.';
comment on column trace_stats.result is '`result` of what the agent returned. Of a game: won, drawn or lost.';
comment on column trace_stats.server is 'Base URL of its model server.';
comment on column trace_stats.started_at is 'When its first step became ready.';
comment on column trace_stats.finished_at is 'When it ended, failed or was cancelled.';
comment on column trace_stats.success is
  'Whether it returned with every evaluation of its task true at its last tick, and had one; of a Harbor task that '
  'was verified, whether every reward is at least 1. Null: it is not over, no trace of the job has an evaluation of '
  'its task, or none was false and one was not evaluated.';
