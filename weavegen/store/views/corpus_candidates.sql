create view corpus_candidates as
select
  c.id as candidate_id, c.trace_id, c.block_index as index, t.job_id, j.name as job, j.agent, j.model,
  f.name as bootstrap, t.status as trace_status, s.tick, c.type, c.round, c.depth, c.position, c.text,
  octet_length(c.text) as bytes, c.tokens, c.finish_reason, p.compiles, coalesce(p.rewritten <> btrim(c.text, E'\n'), false) as was_rewritten,
  p.syntax + p.extra_elements + p.not_a_string + p.code_in_prose + p.shape + p.wrong_name + p.title + p.assertions
    + p.forbidden_calls + p.length_after_debug as penalty,
  (select avg(q.score) from scores q where q.candidate_id = c.id and q.stage = 'selection') as score,
  b.id is not null as chosen, b.id as block_id, b.ran, b.reward, k.reward as tick_reward, k.protected as tick_protected
from candidates c
join steps s on s.id = c.step_id
join traces t on t.id = c.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
left join penalties p on p.candidate_id = c.id
left join blocks b on b.candidate_id = c.id and b.trace_id = c.trace_id
left join ticks k on k.trace_id = c.trace_id and k.number = s.tick
where c.type not in ('bm25-query', 'next-type');

comment on view corpus_candidates is
  'Every text sampled for a block, rejected ones included, with its trace and job.';
comment on column corpus_candidates.candidate_id is 'candidates.id.';
comment on column corpus_candidates.trace_id is 'Its trace.';
comment on column corpus_candidates.index is 'Index of the block that it was sampled for.';
comment on column corpus_candidates.job_id is 'Its job.';
comment on column corpus_candidates.job is 'Name of the job.';
comment on column corpus_candidates.agent is 'The program that wrote the trace: weave, planning, ...';
comment on column corpus_candidates.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column corpus_candidates.bootstrap is 'File name of the bootstrap.';
comment on column corpus_candidates.trace_status is 'queued, running, ended, failed or cancelled.';
comment on column corpus_candidates.tick is 'Number of its tick.';
comment on column corpus_candidates.type is 'Type of the block that it was sampled for.';
comment on column corpus_candidates.round is 'Number of the round: from 0 in a cascade, from 1 in a tree search.';
comment on column corpus_candidates.depth is 'Depth of the node in a tree search, from 1; null: a whole candidate.';
comment on column corpus_candidates.position is 'Position among the candidates of its step, from 0.';
comment on column corpus_candidates.text is 'The body as sampled.';
comment on column corpus_candidates.bytes is 'Bytes of that text in UTF-8.';
comment on column corpus_candidates.tokens is 'Sampled tokens.';
comment on column corpus_candidates.finish_reason is 'stop or length, as the server said.';
comment on column corpus_candidates.compiles is 'Whether it is legal Python; null: it was not linted.';
comment on column corpus_candidates.was_rewritten is
  'Whether linting cut the text to a legal structure that differs from it.';
comment on column corpus_candidates.penalty is 'Sum of what linting subtracted for selection; null: it was not linted.';
comment on column corpus_candidates.score is
  'Score: mean log odds over its questions, without penalties; null: never scored.';
comment on column corpus_candidates.chosen is 'Whether it became a block.';
comment on column corpus_candidates.block_id is 'The block that it became; null: it was not chosen.';
comment on column corpus_candidates.ran is 'Whether that block ran without errors; null: it was not executed.';
comment on column corpus_candidates.reward is 'Share of the tick''s reward that the block got, if it became one.';
comment on column corpus_candidates.tick_reward is
  'The tick''s reward, 0 to 0.5; in a Harbor task that of its tests. Null: it runs, or has none.';
comment on column corpus_candidates.tick_protected is
  'Whether that reward counts protected evaluations only, which the agent can''t forge; null: there is no tick.';
