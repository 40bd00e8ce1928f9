-- Yes/no questions about blocks that the model wrote, and their answers.
-- 1 drawn: an answer drawn by the evaluator's probability. It is not known to be true: it keeps a model calibrated.
-- 2 ran: whether the block ran without errors. Known from execution.
-- 3 asserted: the question of an assertion in the block, and whether it held. Known from execution.
-- 4 tried: whether a candidate that was not chosen ran without errors when it was tried.
-- 5 evaluated: the question of an evaluation, and whether it was true after the action that ran in its tick.
-- 6 annotated: the evaluator's question, answered by a person: yes for good, no for bad.
-- 7 labelled: whether a label of a person's own applies.
create view verifier_labels as
select
  v.source, v.source_id, v.label_id, v.block_id, v.trace_id, v.index, t.job_id, j.name as job, j.agent,
  j.model, f.name as bootstrap, t.status as trace_status, v.tick, v.type, v.question, v.label,
  case v.source when 'drawn' then v.drawn_from else (
    select avg(s.yes / nullif(s.yes + s.no, 0)) from scores s
    where s.candidate_id = c.id and (
      s.question = v.question
      or v.source in ('ran', 'tried') and s.question = 'Will this action run without raising an error?'
    )
  ) end as predicted,
  coalesce({store/imagined_text}, v.body) as body, v.tags, coalesce(q.cut -> 'blocks_shortened_to', '{}') = '{}' as exact_prompt, c.step_id
from (
select b.id as block_id, b.trace_id, b.index, b.tick, b.type, b.candidate_id, b.body, b.tags, l.*
from blocks b
join lateral (
  select 'drawn' as source, 1 as source_id, b.id as label_id, b.question, b.answer as label,
    case when b.answer then b.probability else 1 - b.probability end as drawn_from
  where b.question is not null and b.answer is not null
  union all
  select 'ran', 2, b.id, 'Does this block run without errors?', b.ran, null
  where b.ran is not null
  union all
  select 'asserted', 3, g.id, g.question, g.answer, null
  from grounded_labels g where g.step_id = b.executed_by
) l on true
union all
select b.id, b.trace_id, b.index, b.tick, b.type, c.id, coalesce(n.rewritten, c.text), '{}', 'tried', 4, c.id,
  'Does this block run without errors?', r.ran, null
from trials r
join candidates c on c.id = r.candidate_id
join steps s on s.id = c.step_id
join ticks k on {store/tick_of_step}
join blocks b on b.trace_id = c.trace_id and b.index = c.block_index and b.candidate_id <> c.id
left join penalties n on n.candidate_id = c.id
where r.ran is not null
union all
select b.id, b.trace_id, b.index, b.tick, b.type, b.candidate_id, b.body, b.tags, 'evaluated', 5, e.id, e.title,
  e.value = 'true', null
from evaluations e
join steps s on s.id = e.step_id
join ticks k on {store/tick_of_step}
join blocks b on b.trace_id = e.trace_id and b.tick = e.tick and b.type = 'action' and b.ran
where e.error is null and e.value in ('true', 'false')
union all
select x.block_id, x.trace_id, x.index, x.tick, x.type, x.candidate_id, x.body, x.labels, l.*
from annotated_candidates x
cross join lateral (
  select 'annotated' as source, 6 as source_id, x.annotation_id as label_id, x.question,
    x.verdict = 'good' as label, null::double precision as drawn_from
  where x.verdict is not null
  union all
  select 'labelled', 7, 64 * x.annotation_id + o.position,
    format('Does the label "%s" apply to this block?', regexp_replace(o.label, '^!', '')), not starts_with(o.label, '!'), null
  from unnest(x.labels) with ordinality o (label, position)
) l
) v
join candidates c on c.id = v.candidate_id and c.trace_id = v.trace_id
left join penalties n on n.candidate_id = c.id
join prompts q on q.step_id = c.step_id
join traces t on t.id = v.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id;

comment on view verifier_labels is
  'Yes/no questions about blocks that the model wrote, with answers: drawn (source drawn), of people (annotated, labelled), or known from execution.';
comment on column verifier_labels.source is
  'drawn: drawn by the evaluator''s probability; ran: whether the block ran; asserted: whether an assertion in it held; tried: whether a candidate that was not chosen ran; evaluated: whether an evaluation was true after the action; annotated: a person''s verdict; labelled: a person''s own label.';
comment on column verifier_labels.source_id is 'The source as a number: 1 drawn, 2 ran, 3 asserted, 4 tried, 5 evaluated, 6 annotated, 7 labelled.';
comment on column verifier_labels.label_id is 'grounded_labels.id for the source asserted, candidates.id for tried, evaluations.id for evaluated, annotations.id for annotated, for labelled 64 * annotations.id + position of the label, else blocks.id.';
comment on column verifier_labels.block_id is 'The block; of a candidate that was not chosen, the one that was chosen instead.';
comment on column verifier_labels.trace_id is 'Its trace.';
comment on column verifier_labels.index is 'Index of the block in the trace, from 0.';
comment on column verifier_labels.job_id is 'Its job.';
comment on column verifier_labels.job is 'Name of the job.';
comment on column verifier_labels.agent is 'The program that wrote the trace: weave, planning, ...';
comment on column verifier_labels.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column verifier_labels.bootstrap is 'File name of the bootstrap.';
comment on column verifier_labels.trace_status is 'queued, running, ended, failed or cancelled.';
comment on column verifier_labels.tick is 'Number of its tick.';
comment on column verifier_labels.type is 'Type of the block.';
comment on column verifier_labels.question is 'The question.';
comment on column verifier_labels.label is 'The answer.';
comment on column verifier_labels.predicted is
  'The model''s mean probability of yes when it was asked about this text; of drawn: that with which the label was drawn. '
  'Null: it was not asked.';
comment on column verifier_labels.body is 'The text that the question is about.';
comment on column verifier_labels.tags is 'Tags of the block; of annotated and labelled: the person''s labels.';
comment on column verifier_labels.exact_prompt is
  'Whether the prompt of the block can be rebuilt exactly: no block in it was shortened.';
comment on column verifier_labels.step_id is 'The step that sampled the text.';
