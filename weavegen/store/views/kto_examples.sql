-- Single texts, desirable or not: by the outcome where they were executed, else by the value. Texts with a value from
-- 0 to 1 are left out, for they are neither. Equal texts for one block count once: as the candidate about which most is
-- known, which was executed or became the block. So no text has both labels.
create view kto_examples as
select
  l.*, row_number() over (
    partition by l.trace_id, l.index, l.label
    order by l.because in ('ran', 'failed') desc, abs(l.value) desc nulls last, l.candidate_id
  ) as rank
from (
  select distinct on (v.trace_id, v.index, v.text)
    v.candidate_id, v.trace_id, v.index, v.job_id, v.job, v.agent, v.model, v.bootstrap, v.trace_status, v.tick,
    v.type, v.text,
    case
      when v.ran is not null then v.ran
      when not v.compiles then false
      when v.value >= 1 then true
      when v.value < 0 then false
    end as label,
    case
      when v.ran then 'ran' when v.failed then 'failed' when not v.compiles then 'illegal' else 'valued'
    end as because,
    v.value, v.ran, v.compiles, v.block_id, v.tick_reward, v.tick_protected,
    coalesce(q.cut -> 'blocks_shortened_to', '{}') = '{}' as exact_prompt, v.step_id
  from candidate_values v
  join prompts q on q.step_id = v.step_id
  where v.depth is null or v.finish_reason = 'stop'
  order by v.trace_id, v.index, v.text, v.ran is null, v.block_id is null, v.candidate_id
) l
where l.label is not null;

comment on view kto_examples is
  'Single texts, each desirable or not: it ran, it failed, it is not legal Python, or its value is at least 1 or below 0.';
comment on column kto_examples.candidate_id is 'candidates.id.';
comment on column kto_examples.trace_id is 'Its trace.';
comment on column kto_examples.index is 'Index of the block that it was sampled for.';
comment on column kto_examples.job_id is 'Its job.';
comment on column kto_examples.job is 'Name of the job.';
comment on column kto_examples.agent is 'The program that wrote the trace: weave, planning, ...';
comment on column kto_examples.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column kto_examples.bootstrap is 'File name of the bootstrap.';
comment on column kto_examples.trace_status is 'queued, running, ended, failed or cancelled.';
comment on column kto_examples.tick is 'Number of its tick.';
comment on column kto_examples.type is 'Type of the block.';
comment on column kto_examples.text is 'The body as sampled.';
comment on column kto_examples.label is 'Whether the text is desirable.';
comment on column kto_examples.because is
  'Reason of the label: ran, failed (when executed), illegal (not legal Python) or valued (by its value).';
comment on column kto_examples.value is 'Its value, see candidate_values; null: never scored.';
comment on column kto_examples.ran is 'Whether it ran without errors; null: it was not executed.';
comment on column kto_examples.compiles is 'Whether it is legal Python; null: it was not linted.';
comment on column kto_examples.block_id is 'The block that it became; null: it was not chosen.';
comment on column kto_examples.tick_reward is
  'The tick''s reward, 0 to 0.5; in a Harbor task that of its tests. Null: it runs, or has none.';
comment on column kto_examples.tick_protected is
  'Whether that reward counts protected evaluations only, which the agent can''t forge; null: there is no tick.';
comment on column kto_examples.exact_prompt is
  'Whether the prompt can be rebuilt exactly: no block in it was shortened.';
comment on column kto_examples.step_id is 'The step that sampled it.';
comment on column kto_examples.rank is
  'Rank among the texts of the block with the same label, from 1: executed ones first, then the clearest values.';
