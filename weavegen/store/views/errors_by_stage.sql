create materialized view errors_by_stage as
select
  t.job_id, j.name as job, j.agent, j.model, f.name as bootstrap, e.stage, e.type, e.error, count(*) as errors,
  count(distinct e.trace_id) as traces, max(e.block_id) as block_id
from (
  select
    b.trace_id, b.type, b.id as block_id,
    case when not compiles then 'compile' when ran = false then 'run' else 'observe' end as stage,
    case
      when not compiles then 'SyntaxError'
      when ran = false then coalesce(exception, 'unknown')
      else coalesce((regexp_match(body, '([[:alpha:]_][\w.]*)(:[^\n]*)?\s*$'))[1], 'unknown')
    end as error
  from blocks b
  join traces t on t.id = b.trace_id
  where b.index >= coalesce(t.fork_at, 0) and (
    not compiles or ran = false
    or type = 'error' and not tags @> '{doom-loop}' and exists (
      select from blocks before
      where before.trace_id = b.trace_id and before.index = b.index - 1
        and before.type in ('task-reminder', 'observation')
    )
  )
  union all
  select e.trace_id, e.scope, null, 'evaluate', split_part(e.error, ':', 1)
  from evaluations e
  join steps s on s.id = e.step_id
  join ticks k on {store/tick_of_step}
  where e.error is not null and s.copy_of is null
  union all
  select trace_id, kind, null, 'step', failure_kind from steps where status = 'failed' and copy_of is null
  union all
  select id, '', null, 'trace', failure_kind from traces where status = 'failed'
) e
join traces t on t.id = e.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
group by t.job_id, j.name, j.agent, j.model, f.name, e.stage, e.type, e.error;

create unique index uq_errors_by_stage on errors_by_stage (job_id, bootstrap, stage, type, error);

comment on materialized view errors_by_stage is
  'Errors by stage: a row for each job, bootstrap, stage, type and error. As of the last refresh.';
comment on column errors_by_stage.job_id is 'The job.';
comment on column errors_by_stage.job is 'Its name.';
comment on column errors_by_stage.agent is 'The program that wrote the traces: weave, planning, ...';
comment on column errors_by_stage.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column errors_by_stage.bootstrap is 'File name of the bootstrap.';
comment on column errors_by_stage.stage is
  'compile: a block that is not legal Python; run: an exception in a block; observe: in an observation view; evaluate: in an evaluation; step: a step that failed; trace: a trace that failed.';
comment on column errors_by_stage.type is
  'Type of the block; stage observe: error; evaluate: task or tick; step: kind of the step; trace: empty.';
comment on column errors_by_stage.error is 'Class of the exception; stages step and trace: kind of the failure.';
comment on column errors_by_stage.errors is 'Number of errors.';
comment on column errors_by_stage.traces is 'Number of traces with this error.';
comment on column errors_by_stage.block_id is
  'The newest block with this error; null: the error belongs to no block.';
