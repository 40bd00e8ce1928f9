create view corpus as
select
  b.id as block_id, b.trace_id, b.index, t.job_id, j.name as job, j.agent, j.model, f.name as bootstrap,
  t.status as trace_status, b.tick, b.subagent, b.type, b.title, b.body, b.rendered,
  octet_length(b.rendered) as bytes, b.compiles, b.ran, b.exception, b.question, b.answer, b.probability,
  b.score, b.reward, k.reward as tick_reward, k.protected as tick_protected, b.preference, b.tags, b.bm25_query, b.block_size, c.tokens,
  b.candidate_id, b.created_at
from blocks b
join traces t on t.id = b.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
left join ticks k on k.trace_id = b.trace_id and k.number = b.tick
left join candidates c on c.id = b.candidate_id;

comment on view corpus is 'Every recorded block, with its trace, job, bootstrap and tick. Start here.';
comment on column corpus.block_id is 'blocks.id.';
comment on column corpus.trace_id is 'Its trace.';
comment on column corpus.index is 'Position in the trace, from 0, without gaps.';
comment on column corpus.job_id is 'Its job.';
comment on column corpus.job is 'Name of the job.';
comment on column corpus.agent is 'The program that wrote the trace: weave, planning, ...';
comment on column corpus.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column corpus.bootstrap is 'File name of the bootstrap.';
comment on column corpus.trace_status is 'queued, running, ended, failed or cancelled.';
comment on column corpus.tick is 'Number of its tick; 0 is the bootstrap''s own.';
comment on column corpus.subagent is 'Name of the subagent that wrote it.';
comment on column corpus.type is 'Its type: orientation, action, ...';
comment on column corpus.title is 'Title of an observation.';
comment on column corpus.body is 'The text between header and footer, not commented out.';
comment on column corpus.rendered is 'The block as it stands in the trace.';
comment on column corpus.bytes is 'Bytes of the rendered block in UTF-8.';
comment on column corpus.compiles is 'Whether its body is legal Python.';
comment on column corpus.ran is 'Whether it ran without errors; null: it was not executed.';
comment on column corpus.exception is 'Class of the exception that ended the block''s code.';
comment on column corpus.question is 'What the evaluator was asked about it.';
comment on column corpus.answer is 'The answer, drawn once with the model''s own probability.';
comment on column corpus.probability is 'Probability of the drawn answer.';
comment on column corpus.score is 'Raw score: log odds after rewriting, without penalties; null: never scored.';
comment on column corpus.reward is
  'Its share of the tick''s reward; null: blocks of its type get none, or the tick runs.';
comment on column corpus.tick_reward is
  'The tick''s reward, 0 to 0.5; in a Harbor task that of its tests. Null: it runs, or has none.';
comment on column corpus.tick_protected is
  'Whether that reward counts protected evaluations only, which the agent can''t forge; null: there is no tick.';
comment on column corpus.preference is 'Correction that preference data add to its score; null: none.';
comment on column corpus.tags is 'Tags.';
comment on column corpus.bm25_query is 'The query that the model wrote before the block.';
comment on column corpus.block_size is
  'Tokens that the model was allowed for the block; null: the model did not write it.';
comment on column corpus.tokens is 'Tokens that were sampled for it, before rewriting; null: it was not sampled.';
comment on column corpus.candidate_id is 'The candidate that it was made of.';
comment on column corpus.created_at is 'When it was recorded.';
