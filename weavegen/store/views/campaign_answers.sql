create view campaign_answers as
select
  a.id as answer_id, m.name as campaign, m.over, m.rubric_version as rubric, i.id as item_id, i.block_id,
  i.candidate_id, g.trace_id, c.block_index as index, t.job_id, j.name as job, f.name as bootstrap, c.type,
  a.question, a.truth, a.yes, a.no, a.yes / nullif(a.yes + a.no, 0) as probability, a.score, a.model, a.server,
  i.context_tokens, a.created_at
from answers a
join campaign_items i on i.id = a.item_id
join campaign_batches g on g.id = i.batch_id
join campaigns m on m.id = g.campaign_id
join candidates c on c.id = i.candidate_id
join traces t on t.id = g.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id;

comment on view campaign_answers is
  'Answers of the model in campaigns of weavegen rescore: a row for each text and question.';
comment on column campaign_answers.answer_id is 'answers.id.';
comment on column campaign_answers.campaign is 'Name of the campaign.';
comment on column campaign_answers.over is 'What it asks about: blocks or candidates.';
comment on column campaign_answers.rubric is 'Version of its rubric.';
comment on column campaign_answers.item_id is 'campaign_items.id.';
comment on column campaign_answers.block_id is 'The block asked about; null: the campaign asks about candidates.';
comment on column campaign_answers.candidate_id is
  'The candidate asked about, or the candidate that the block was made of.';
comment on column campaign_answers.trace_id is 'Its trace.';
comment on column campaign_answers.index is 'Index of the block that it was written for.';
comment on column campaign_answers.job_id is 'Its job.';
comment on column campaign_answers.job is 'Name of the job.';
comment on column campaign_answers.bootstrap is 'File name of the bootstrap.';
comment on column campaign_answers.type is 'Type of the block.';
comment on column campaign_answers.question is 'The question.';
comment on column campaign_answers.truth is
  'Source of the true answer: ran, evaluation or assertion; null: none is recorded.';
comment on column campaign_answers.yes is 'Probability mass of yes.';
comment on column campaign_answers.no is 'Probability mass of no.';
comment on column campaign_answers.probability is 'Probability of yes among yes and no; null: neither had any mass.';
comment on column campaign_answers.score is 'Log odds of yes; null: neither yes nor no had any mass.';
comment on column campaign_answers.model is 'The model that answered.';
comment on column campaign_answers.server is 'Base URL of the server that answered.';
comment on column campaign_answers.context_tokens is 'Tokens that the model read before the text; null: not known.';
comment on column campaign_answers.created_at is 'When the answer was stored.';
