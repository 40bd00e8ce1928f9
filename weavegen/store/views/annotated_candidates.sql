-- What people say about texts that the model sampled. The question is the one that the evaluator answered about the
-- text and whose answer no execution tells: a person's verdict, good or bad, is taken as the right answer to it.
create view annotated_candidates as
select
  a.id as annotation_id, a.author, a.verdict, a.labels, a.note, a.changed_at, c.id as candidate_id, c.trace_id,
  c.block_index as index, t.job_id, j.name as job, j.agent, j.model, f.name as bootstrap, s.tick, c.type,
  b.id as block_id, b.candidate_id is not distinct from c.id as kept,
  coalesce(
    {store/imagined_text}, case when b.candidate_id = c.id then b.body else coalesce(n.rewritten, c.text) end
  ) as body,
  coalesce(q.question, 'Is this block good?') as question, q.yes / nullif(q.yes + q.no, 0) as predicted, q.score,
  c.step_id
from annotations a
join candidates c on c.id = a.candidate_id
join steps s on s.id = c.step_id
join ticks k on {store/tick_of_step}
join blocks b on b.trace_id = c.trace_id and b.index = c.block_index
join traces t on t.id = c.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
left join penalties n on n.candidate_id = c.id
left join lateral (
  select o.question, o.yes, o.no, o.score from scores o
  where o.candidate_id = c.id and o.stage in ('raw', 'selection') and o.question not in (
    'Does this block run without errors?', 'Will this action run without raising an error?',
    'Will this evaluation come out true?')
  order by o.stage, o.id limit 1
) q on true
where c.type not in ('bm25-query', 'next-type');

comment on view annotated_candidates is
  'What people say about texts that the model sampled, with the evaluator''s answer: a row for each person and text.';
comment on column annotated_candidates.annotation_id is 'annotations.id.';
comment on column annotated_candidates.author is 'The person.';
comment on column annotated_candidates.verdict is 'good or bad; null: neither.';
comment on column annotated_candidates.labels is 'The person''s own labels; one that begins with ! does not apply.';
comment on column annotated_candidates.note is 'A note; empty: none.';
comment on column annotated_candidates.changed_at is 'When the person last changed it.';
comment on column annotated_candidates.candidate_id is 'The text, candidates.id.';
comment on column annotated_candidates.trace_id is 'Its trace.';
comment on column annotated_candidates.index is 'Index of the block that it was sampled for.';
comment on column annotated_candidates.job_id is 'Its job.';
comment on column annotated_candidates.job is 'Name of the job.';
comment on column annotated_candidates.agent is 'The program that wrote the trace: weave, planning, ...';
comment on column annotated_candidates.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column annotated_candidates.bootstrap is 'File name of the bootstrap.';
comment on column annotated_candidates.tick is 'Number of its tick.';
comment on column annotated_candidates.type is 'Type of the block that it was sampled for.';
comment on column annotated_candidates.block_id is 'The block at this index, which the text or another one became.';
comment on column annotated_candidates.kept is 'Whether the text became the block.';
comment on column annotated_candidates.body is 'The text in legal structure.';
comment on column annotated_candidates.question is
  'What the evaluator was asked about the text; if it was asked nothing: Is this block good?';
comment on column annotated_candidates.predicted is
  'The evaluator''s probability of yes; null: it was not asked, or gave neither answer any mass.';
comment on column annotated_candidates.score is 'The evaluator''s log odds of yes; null: as for predicted.';
comment on column annotated_candidates.step_id is 'The step that sampled the text.';
