-- A row for each tick: its blocks as steps, each right or wrong by its outcome. A callback block is right if it ran.
-- Reasoning is right if the block that it led to ran, which its preference correction says. Blocks without an outcome
-- are no steps: expectations, and actions that were taken back. And a row for each candidate that was tried and not
-- chosen: the steps before it, and the candidate as the last step.
create view stepwise_examples as
with labelled as (
  select b.trace_id, b.tick, b.index, b.subagent, b.candidate_id, b.type,
    case
      when not b.compiles then false when b.ran is not null then b.ran
      when b.preference is not null then b.preference >= 0
    end as label
  from blocks b
  join candidates c on c.id = b.candidate_id and c.trace_id = b.trace_id
),
ways as (
  select distinct trace_id, tick, null::bigint as candidate_id, null::integer as index, null::boolean as label
  from labelled
  union all
  select b.trace_id, b.tick, c.id, b.index, r.ran
  from trials r
  join candidates c on c.id = r.candidate_id
  join steps s on s.id = c.step_id
  join ticks k on {store/tick_of_step}
  join labelled b on b.trace_id = c.trace_id and b.index = c.block_index and b.type = c.type and b.candidate_id <> c.id
  where r.ran is not null
)
select
  w.trace_id, w.tick, t.job_id, j.name as job, j.agent, j.model, f.name as bootstrap, t.status as trace_status,
  min(l.subagent) as subagent, min(l.index) as first_step, count(*) as steps,
  count(*) filter (where case when l.index = w.index then w.label else l.label end) as right_steps,
  k.reward as tick_reward, k.protected as tick_protected, w.candidate_id, coalesce(w.candidate_id, -w.tick) as ending
from ways w
join labelled l on l.trace_id = w.trace_id and l.tick = w.tick
  and (w.index is null or l.index <= w.index)
join traces t on t.id = w.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
join ticks k on k.trace_id = w.trace_id and k.number = w.tick
where l.label is not null or l.index = w.index
group by w.trace_id, w.tick, w.candidate_id, t.job_id, j.name, j.agent, j.model, f.name, t.status, k.reward,
  k.protected;

comment on view stepwise_examples is 
  'A row for each tick with blocks that are known to be right or wrong, and for each candidate that was tried and not chosen.';
comment on column stepwise_examples.trace_id is 'Its trace.';
comment on column stepwise_examples.tick is 'Number of the tick.';
comment on column stepwise_examples.job_id is 'Its job.';
comment on column stepwise_examples.job is 'Name of the job.';
comment on column stepwise_examples.agent is 'The program that wrote the trace: weave, planning, ...';
comment on column stepwise_examples.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column stepwise_examples.bootstrap is 'File name of the bootstrap.';
comment on column stepwise_examples.trace_status is 'queued, running, ended, failed or cancelled.';
comment on column stepwise_examples.subagent is 'Name of the subagent whose tick it is.';
comment on column stepwise_examples.first_step is 'Index of the first block that is known to be right or wrong.';
comment on column stepwise_examples.steps is 'Blocks that are known to be right or wrong.';
comment on column stepwise_examples.right_steps is 'Blocks that are known to be right.';
comment on column stepwise_examples.tick_reward is
  'The tick''s reward, 0 to 0.5; in a Harbor task that of its tests. Null: it runs, or has none.';
comment on column stepwise_examples.tick_protected is
  'Whether that reward counts protected evaluations only, which the agent can''t forge; null: there is no tick.';
comment on column stepwise_examples.candidate_id is
  'The candidate that was tried and not chosen, and that is the last step; null: the tick as it was written.';
comment on column stepwise_examples.ending is 'candidate_id, or minus the tick''s number: a number for the key.';
