-- A row for each trace that has blocks, to be exported as a whole text.
create view text_examples as
select
  t.id as trace_id, t.job_id, j.name as job, j.agent, j.model, f.name as bootstrap, t.number,
  t.status as trace_status, t.ended_because, t.failure_kind,
  {store/trace_result} as result,
  t.ticks, t.blocks, t.bytes, r.mean_tick_reward, r.protected_ticks, r.not_evaluated, t.retry_of, t.fork_of, t.fork_at,
  t.created_at, t.finished_at
from traces t
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
left join lateral (
  -- Without the bootstrap's own tick, which is the same in all traces of a bootstrap.
  select avg(k.reward) as mean_tick_reward, count(k.reward) filter (where k.protected) as protected_ticks,
    sum(k.not_evaluated)::bigint as not_evaluated
  from ticks k where k.trace_id = t.id and k.number > 0
) r on true
where t.blocks > 0;

comment on view text_examples is 'A row for each trace that has blocks. Exported by text, tree, py, json, atif, harbor and sessions.';
comment on column text_examples.trace_id is 'traces.id.';
comment on column text_examples.job_id is 'Its job.';
comment on column text_examples.job is 'Name of the job.';
comment on column text_examples.agent is 'The program that wrote the trace: weave, planning, ...';
comment on column text_examples.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column text_examples.bootstrap is 'File name of the bootstrap.';
comment on column text_examples.number is 'Position in its job, from 1.';
comment on column text_examples.trace_status is 'queued, running, ended, failed or cancelled.';
comment on column text_examples.ended_because is
  'returned, or the budget that was spent: ticks, blocks, bytes, time, ...';
comment on column text_examples.failure_kind is 'model, environment, bootstrap or bug, where it failed.';
comment on column text_examples.result is
  '`result` of what the agent returned. Of a game: won, drawn or lost; of a conversation: success or no success.';
comment on column text_examples.ticks is 'Finished ticks, without the bootstrap''s.';
comment on column text_examples.blocks is 'Blocks recorded.';
comment on column text_examples.bytes is 'Bytes of the rendered trace.';
comment on column text_examples.mean_tick_reward is
  'Mean reward of its ticks, without the bootstrap''s; null: no tick has a reward.';
comment on column text_examples.protected_ticks is
  'Ticks whose reward counts protected evaluations only, which the agent can''t forge.';
comment on column text_examples.not_evaluated is
  'Protected evaluations that rewards leave out, because they were not evaluated.';
comment on column text_examples.retry_of is 'The trace that it is a retry of; null: none.';
comment on column text_examples.fork_of is 'The trace whose first blocks it shares; null: it is no fork.';
comment on column text_examples.fork_at is 'Of a fork: index of the first block of its own.';
comment on column text_examples.created_at is 'When it was enqueued.';
comment on column text_examples.finished_at is 'When it ended, failed or was cancelled.';
