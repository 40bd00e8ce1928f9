-- A row for each trace of a conversing agent, with the outcome.
create view conversations as
select
  t.id as trace_id, t.job_id, j.name as job, j.agent, j.model, f.name as bootstrap, t.number,
  t.status as trace_status, t.ended_because, t.failure_kind, m.task, m.messages, m.replies, m.reply_tokens,
  case when jsonb_typeof(t.returned -> 'success') = 'boolean' then (t.returned -> 'success')::boolean end as success,
  coalesce(t.returned ->> 'final_response', t.returned ->> 'summary') as final_response,
  coalesce(t.returned ->> 'error', t.failure) as error,
  case when jsonb_typeof(t.returned -> 'total_tokens') = 'number' then (t.returned -> 'total_tokens')::bigint end
    as total_tokens,
  t.bytes, t.sampled_tokens, s.trace_id as called_by_trace, t.retry_of, t.fork_of, t.fork_at, t.created_at, t.finished_at
from traces t
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
left join steps s on s.id = t.called_by
cross join lateral (
  select
    (array_agg(b.body order by b.index) filter (where b.type = 'user'))[1] as task,
    count(*) as messages, count(c.id) as replies, sum(c.tokens)::bigint as reply_tokens
  from blocks b left join candidates c on c.id = b.candidate_id
  where b.trace_id = t.id and b.type in ('system', 'user', 'assistant', 'tool')
) m
where m.messages > 0;

comment on view conversations is
  'A row for each trace that is a conversation (react, research, ...). Exported by the formats messages and trajectories.';
comment on column conversations.trace_id is 'traces.id.';
comment on column conversations.job_id is 'Its job.';
comment on column conversations.job is 'Name of the job.';
comment on column conversations.agent is 'The program that wrote the trace: react, research, ...';
comment on column conversations.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column conversations.bootstrap is 'File name of the bootstrap, or the beginning of the task.';
comment on column conversations.number is 'Position in its job, from 1.';
comment on column conversations.trace_status is 'queued, running, ended, failed or cancelled.';
comment on column conversations.ended_because is
  'returned, or the budget that was spent: ticks, blocks, bytes, time, ...';
comment on column conversations.failure_kind is 'model, environment, bootstrap or bug, where it failed.';
comment on column conversations.task is 'The user''s first message.';
comment on column conversations.messages is 'Messages of all roles.';
comment on column conversations.replies is 'Messages that the model wrote.';
comment on column conversations.reply_tokens is 'Sampled tokens of the model''s messages.';
comment on column conversations.success is
  '`success` of what the agent returned; null: it returned none, or is not over.';
comment on column conversations.final_response is 'The agent''s last answer, or its summary.';
comment on column conversations.error is 'Why there was no success, if the agent or the trace says so.';
comment on column conversations.total_tokens is 'Tokens of the whole conversation, as the agent counts them.';
comment on column conversations.bytes is 'Bytes of the rendered trace.';
comment on column conversations.sampled_tokens is
  'Tokens sampled from the model, those of rejected candidates included.';
comment on column conversations.called_by_trace is 'The trace that delegated to it; null: people enqueued it.';
comment on column conversations.retry_of is 'The trace that it is a retry of; null: none.';
comment on column conversations.fork_of is 'The trace whose first blocks it shares; null: it is no fork.';
comment on column conversations.fork_at is 'Of a fork: index of the first block of its own.';
comment on column conversations.created_at is 'When it was enqueued.';
comment on column conversations.finished_at is 'When it ended, failed or was cancelled.';
