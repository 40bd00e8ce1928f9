-- A row for each round: the candidates that one step sampled after one prompt, with their values.
create view sampled_groups as
select
  g.trace_id, g.index, g.step_id, t.job_id, j.name as job, j.agent, j.model, f.name as bootstrap,
  t.status as trace_status, g.tick, g.type, g.round, g.samples, g.recorded, g.mean_value, g.spread, g.block_id, b.ran,
  g.tick_reward, g.tick_protected
from (
  select
    v.trace_id, v.index, v.step_id, v.tick, v.type, v.round, v.tick_reward, v.tick_protected,
    max(v.block_id) as block_id,
    count(v.value) as samples, count(v.value) filter (where c.logprobs is not null) as recorded,
    avg(v.value) as mean_value, stddev_pop(v.value) as spread
  from candidate_values v join candidates c on c.id = v.candidate_id
  where v.depth is null
  group by v.trace_id, v.index, v.step_id, v.tick, v.type, v.round, v.tick_reward, v.tick_protected
) g
join traces t on t.id = g.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
left join blocks b on b.id = g.block_id;

comment on view sampled_groups is 'A row for each round of whole candidates, all sampled after the same prompt. Exported by the format atropos.';
comment on column sampled_groups.trace_id is 'Its trace.';
comment on column sampled_groups.index is 'Index of the block that they were sampled for.';
comment on column sampled_groups.step_id is 'The step that sampled them.';
comment on column sampled_groups.job_id is 'Its job.';
comment on column sampled_groups.job is 'Name of the job.';
comment on column sampled_groups.agent is 'The program that wrote the trace: weave, planning, ...';
comment on column sampled_groups.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column sampled_groups.bootstrap is 'File name of the bootstrap.';
comment on column sampled_groups.trace_status is 'queued, running, ended, failed or cancelled.';
comment on column sampled_groups.tick is 'Number of its tick.';
comment on column sampled_groups.type is 'Type of the block that they were sampled for.';
comment on column sampled_groups.round is 'Number of the round in the cascade, from 0.';
comment on column sampled_groups.samples is 'Candidates of the round that have a value, see candidate_values.';
comment on column sampled_groups.recorded is
  'Candidates with a value whose token ids and logprobs are recorded. All are with --set tokens=all.';
comment on column sampled_groups.mean_value is 'Mean value of the candidates; null: none has a value.';
comment on column sampled_groups.spread is
  'Standard deviation of the values; 0: there is nothing to learn from; null: no candidate has a value.';
comment on column sampled_groups.block_id is 'The block that a candidate of the round became; null: none did.';
comment on column sampled_groups.ran is 'Whether that block ran without errors; null: it was not executed.';
comment on column sampled_groups.tick_reward is
  'The tick''s reward, 0 to 0.5; in a Harbor task that of its tests. Null: it runs, or has none.';
comment on column sampled_groups.tick_protected is
  'Whether that reward counts protected evaluations only, which the agent can''t forge; null: there is no tick.';
