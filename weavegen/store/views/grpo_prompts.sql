-- A row for each block that the model wrote: its prompt, and the values of the candidates sampled after it. Where all
-- values are equal there is nothing to learn: spread is 0.
create view grpo_prompts as
select
  g.trace_id, g.index, g.block_id, t.job_id, j.name as job, j.agent, j.model, f.name as bootstrap,
  t.status as trace_status, b.tick, b.type, b.question, g.samples, g.mean_value, g.spread, b.ran,
  k.reward as tick_reward, k.protected as tick_protected, b.block_size, coalesce(q.cut -> 'blocks_shortened_to', '{}') = '{}' as exact_prompt,
  c.step_id
from (
  select
    v.trace_id, v.index, max(v.block_id) as block_id, count(v.value) as samples, avg(v.value) as mean_value,
    stddev_pop(v.value) as spread
  from candidate_values v join steps s on s.id = v.step_id
  where v.depth is null or v.finish_reason = 'stop'
  group by v.trace_id, v.index, s.request -> 'prompt' ->> 'header', s.request -> 'prompt' ->> 'draft'
  having max(v.block_id) is not null
) g
join blocks b on b.id = g.block_id
join candidates c on c.id = b.candidate_id
join prompts q on q.step_id = c.step_id
join traces t on t.id = g.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
left join ticks k on k.trace_id = b.trace_id and k.number = b.tick;

comment on view grpo_prompts is
  'A row for each block that the model wrote: its prompt, and the values of the candidates sampled after it.';
comment on column grpo_prompts.trace_id is 'Its trace.';
comment on column grpo_prompts.index is 'Index of the block in the trace, from 0.';
comment on column grpo_prompts.block_id is 'blocks.id.';
comment on column grpo_prompts.job_id is 'Its job.';
comment on column grpo_prompts.job is 'Name of the job.';
comment on column grpo_prompts.agent is 'The program that wrote the trace: weave, planning, ...';
comment on column grpo_prompts.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column grpo_prompts.bootstrap is 'File name of the bootstrap.';
comment on column grpo_prompts.trace_status is 'queued, running, ended, failed or cancelled.';
comment on column grpo_prompts.tick is 'Number of its tick.';
comment on column grpo_prompts.type is 'Type of the block.';
comment on column grpo_prompts.question is 'What the evaluator was asked about it.';
comment on column grpo_prompts.samples is 'Candidates sampled after this prompt that have a value.';
comment on column grpo_prompts.mean_value is
  'Mean value of the candidates, see candidate_values; null: none has a value.';
comment on column grpo_prompts.spread is 'Standard deviation of the values; null: no candidate has a value.';
comment on column grpo_prompts.ran is 'Whether the block ran without errors; null: it was not executed.';
comment on column grpo_prompts.tick_reward is
  'The tick''s reward, 0 to 0.5; in a Harbor task that of its tests. Null: it runs, or has none.';
comment on column grpo_prompts.tick_protected is
  'Whether that reward counts protected evaluations only, which the agent can''t forge; null: there is no tick.';
comment on column grpo_prompts.block_size is 'Tokens that the model was allowed for the block.';
comment on column grpo_prompts.exact_prompt is
  'Whether the prompt can be rebuilt exactly: no block in it was shortened.';
comment on column grpo_prompts.step_id is 'The step that sampled the block''s candidate.';
