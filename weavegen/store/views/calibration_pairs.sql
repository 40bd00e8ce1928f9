create view calibration_pairs as
with asked as (
  -- The ticks' questions about a block before it was executed: about the rewritten text, else about the sampled one.
  select null::text as campaign, b.id as block_id, s.rubric, s.question, s.yes, s.no, s.score,
    case
      when s.question in (
        'Does this block run without errors?', 'Will this action run without raising an error?') then 'ran'
      when s.question = 'Will this evaluation come out true?' then 'evaluation'
    end as truth
  from blocks b
  join scores s on s.candidate_id = b.candidate_id
  where b.ran is not null and (s.stage = 'raw' or s.stage = 'selection' and not exists (
    select from scores r where r.candidate_id = b.candidate_id and r.stage = 'raw'))
  union all
  select m.name, b.id, m.rubric_version, a.question, a.yes, a.no, a.score, a.truth
  from answers a
  join campaign_items i on i.id = a.item_id
  join campaign_batches g on g.id = i.batch_id
  join campaigns m on m.id = g.campaign_id
  join blocks b on b.id = coalesce(i.block_id, (
    select k.id from blocks k where k.candidate_id = i.candidate_id and k.trace_id = g.trace_id limit 1))
),
evaluated as (
  -- The result of the evaluation that a block registered, if it is the only one of its tick.
  select e.trace_id, e.tick, min(e.title) as title,
    bool_and(coalesce(e.error is null and e.value = 'true', false)) as answer
  from evaluations e
  join steps s on s.id = e.step_id
  join ticks k on {store/tick_of_step}
  where e.scope = 'tick' group by e.trace_id, e.tick having count(*) = 1
),
judged as (
  -- Questions about texts that people annotated: those of the ticks, and those of campaigns.
  select null::text as campaign, x.block_id, s.rubric, s.question, s.yes, s.no, s.score,
    s.question = x.question as exact, x.verdict, x.author, x.candidate_id
  from annotated_candidates x
  join scores s on s.candidate_id = x.candidate_id
  where x.verdict is not null and (s.stage = 'raw' or s.stage = 'selection' and not exists (
    select from scores r where r.candidate_id = x.candidate_id and r.stage = 'raw'))
  union all
  select m.name, x.block_id, m.rubric_version, a.question, a.yes, a.no, a.score, a.question = x.question, x.verdict,
    x.author, x.candidate_id
  from annotated_candidates x
  join campaign_items i on i.candidate_id = x.candidate_id
  join answers a on a.item_id = i.id
  join campaign_batches g on g.id = i.batch_id
  join campaigns m on m.id = g.campaign_id
  where x.verdict is not null
),
paired as (
  select a.*, a.truth is not distinct from 'ran' as exact, 'ran' as by, b.ran as answer,
    null::text as author, b.candidate_id
  from asked a join blocks b on b.id = a.block_id
  where b.ran is not null and (a.truth is null or a.truth = 'ran')
  union all
  select a.*, true, 'evaluation', e.answer, null, b.candidate_id
  from asked a join blocks b on b.id = a.block_id
  join evaluated e on e.trace_id = b.trace_id and e.tick = b.tick
  where a.truth = 'evaluation' and b.type = 'evaluation' and b.ran
  union all
  select a.*, true, 'assertion', l.answer, null, b.candidate_id
  from asked a join blocks b on b.id = a.block_id
  join grounded_labels l on l.step_id = b.executed_by and l.question = a.question
  where a.truth = 'assertion'
  union all
  select campaign, block_id, rubric, question, yes, no, score, null, exact, 'annotation', verdict = 'good', author,
    candidate_id
  from judged
)
select
  p.campaign, p.rubric, p.question, p.by as truth, p.exact, p.yes / nullif(p.yes + p.no, 0) as probability, p.score,
  p.answer, p.block_id, b.trace_id, b.index, b.tick, t.job_id, j.name as job, j.model, f.name as bootstrap, b.type,
  p.author, p.candidate_id
from paired p
join blocks b on b.id = p.block_id
join traces t on t.id = b.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
where t.fork_at is null or b.index >= t.fork_at;

comment on view calibration_pairs is
  'The model''s probability of an answer, and the true answer. Blocks that a fork shares count once.';
comment on column calibration_pairs.campaign is 'Campaign that asked; null: the tick that wrote the block.';
comment on column calibration_pairs.rubric is 'Version of the rubric.';
comment on column calibration_pairs.question is 'The question.';
comment on column calibration_pairs.truth is 'Source of the true answer: ran, evaluation or assertion; annotation: a person''s verdict, good or bad.';
comment on column calibration_pairs.exact is
  'Whether the true answer is that of the question itself; false: it is only related to the question.';
comment on column calibration_pairs.probability is
  'The model''s probability of yes; null: neither yes nor no had any mass.';
comment on column calibration_pairs.score is 'The model''s log odds of yes; null: neither yes nor no had any mass.';
comment on column calibration_pairs.answer is 'The true answer.';
comment on column calibration_pairs.block_id is
  'The block asked about; of an annotated candidate that was not chosen: the block that was chosen instead.';
comment on column calibration_pairs.trace_id is 'Its trace.';
comment on column calibration_pairs.index is 'Index of the block.';
comment on column calibration_pairs.tick is 'Number of the block''s tick.';
comment on column calibration_pairs.job_id is 'Its job.';
comment on column calibration_pairs.job is 'Name of the job.';
comment on column calibration_pairs.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column calibration_pairs.bootstrap is 'File name of the bootstrap.';
comment on column calibration_pairs.type is 'Type of the block.';
comment on column calibration_pairs.author is 'The person whose verdict is the answer; null: another source.';
comment on column calibration_pairs.candidate_id is 'The text asked about, candidates.id.';
