create materialized view step_times as
select
  t.job_id, j.name as job, j.agent, j.model, f.name as bootstrap, s.kind, s.what, sum(s.steps)::bigint as steps,
  sum(s.retried)::bigint as retried, sum(s.failed)::bigint as failed, sum(s.model_seconds) as model_seconds,
  sum(s.environment_seconds) as environment_seconds, sum(s.own_seconds) as own_seconds,
  sum(s.waiting_seconds) as waiting_seconds, max(s.longest_seconds) as longest_seconds
from (
  select
    trace_id, kind,
    case kind
      when 'execute' then concat_ws(' ', split_part(label, ' ', 5), nullif(split_part(label, ' ', 6), ''))
      when 'work' then 'subagent'
      else split_part(label, ' ', 5)
    end as what,
    count(*) as steps, count(*) filter (where claims > 1) as retried,
    count(*) filter (where status = 'failed') as failed,
    coalesce(sum(model_seconds), 0) as model_seconds,
    coalesce(sum(environment_seconds), 0) as environment_seconds,
    coalesce(sum(working_seconds - coalesce(model_seconds, 0) - coalesce(environment_seconds, 0)), 0)
      as own_seconds,
    coalesce(sum(extract(epoch from claimed_at - ready_at)::double precision), 0) as waiting_seconds,
    coalesce(max(working_seconds), 0) as longest_seconds
  from steps where copy_of is null group by 1, 2, 3
) s
join traces t on t.id = s.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
group by t.job_id, j.name, j.agent, j.model, f.name, s.kind, s.what;

create unique index uq_step_times on step_times (job_id, bootstrap, kind, what);

comment on materialized view step_times is
  'Durations of steps: a row for each job, bootstrap and kind of step. As of the last refresh.';
comment on column step_times.job_id is 'The job.';
comment on column step_times.job is 'Its name.';
comment on column step_times.agent is 'The program that wrote the traces: weave, planning, ...';
comment on column step_times.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column step_times.bootstrap is 'File name of the bootstrap.';
comment on column step_times.kind is 
  'sample, lint, score, retrieve, execute, consult (look-ups), work (ticks of a subagent), delegate (another trace) or '
  'await (a person).';
comment on column step_times.what is
  'Block type that the step was for; of execute: what was executed, and the block type; of consult the tool; of '
  'delegate the agent.';
comment on column step_times.steps is 'Number of steps.';
comment on column step_times.retried is 'Steps that were claimed more than once.';
comment on column step_times.failed is 'Steps that failed.';
comment on column step_times.model_seconds is 'Seconds that the steps waited for the model server.';
comment on column step_times.environment_seconds is 'Seconds that the steps waited for the environment.';
comment on column step_times.own_seconds is 'Seconds of the steps that were spent on neither: weavegen''s own work.';
comment on column step_times.waiting_seconds is
  'Seconds from when the steps were ready to their last claim, with earlier attempts and with pauses.';
comment on column step_times.longest_seconds is 'Seconds from claim to end of the longest step.';
