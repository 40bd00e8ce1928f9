-- A row for each block to imitate: written by the model, kept, legal, and not known to have failed.
create view sft_examples as
select
  b.id as block_id, b.trace_id, b.index, t.job_id, j.name as job, j.agent, j.model, f.name as bootstrap,
  t.status as trace_status, b.tick, b.subagent, b.type,
  coalesce({store/imagined_text}, b.body) as body, b.ran, b.question, b.answer, b.probability, b.score,
  b.reward, k.reward as tick_reward, k.protected as tick_protected, b.preference, b.tags, c.round, c.depth, c.tokens, p.tokens as prompt_tokens,
  coalesce(p.cut -> 'blocks_shortened_to', '{}') = '{}' as exact_prompt, coalesce(n.rewritten <> btrim(c.text, E'\n'), false) as was_rewritten,
  c.id as candidate_id, c.step_id, b.created_at
from blocks b
-- A block that a fork copied from its parent was made of the parent's candidate: it counts once, in the parent.
join candidates c on c.id = b.candidate_id and c.trace_id = b.trace_id
join prompts p on p.step_id = c.step_id
join traces t on t.id = b.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
left join ticks k on k.trace_id = b.trace_id and k.number = b.tick
left join penalties n on n.candidate_id = c.id
where b.compiles and b.ran is not false
  -- Code that called a subagent has no result of its own: its correction says whether the block with the answer failed.
  and not coalesce(b.type in ('action', 'evaluation') and b.preference < 0, false)
  -- A callback block that was never executed was taken back. In planning nothing is executed at all.
  and (b.type not in ('action', 'evaluation', 'observation-inference') or b.executed_by is not null
    or j.agent = 'planning' or b.tags @> '{imagined}');

comment on view sft_examples is
  'Blocks to imitate: written by the model, kept, legal, not taken back, and not known to have failed.';
comment on column sft_examples.block_id is 'blocks.id.';
comment on column sft_examples.trace_id is 'Its trace.';
comment on column sft_examples.index is 'Index of the block in the trace, from 0.';
comment on column sft_examples.job_id is 'Its job.';
comment on column sft_examples.job is 'Name of the job.';
comment on column sft_examples.agent is 'The program that wrote the trace: weave, planning, ...';
comment on column sft_examples.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column sft_examples.bootstrap is 'File name of the bootstrap.';
comment on column sft_examples.trace_status is 'queued, running, ended, failed or cancelled.';
comment on column sft_examples.tick is 'Number of its tick.';
comment on column sft_examples.subagent is 'Name of the subagent that wrote it.';
comment on column sft_examples.type is 'Its type: orientation, action, ...';
comment on column sft_examples.body is 'The text to be learned, cut to its legal structure.';
comment on column sft_examples.ran is
  'Whether it ran without errors; null: it was not executed, or it calls a subagent.';
comment on column sft_examples.question is 'What the evaluator was asked about it.';
comment on column sft_examples.answer is 'The answer, drawn once with the model''s own probability.';
comment on column sft_examples.probability is 'Probability of the drawn answer.';
comment on column sft_examples.score is 'Raw score: log odds after rewriting, without penalties; null: never scored.';
comment on column sft_examples.reward is
  'Its share of the tick''s reward; null: blocks of its type get none, or the tick runs.';
comment on column sft_examples.tick_reward is
  'The tick''s reward, 0 to 0.5; in a Harbor task that of its tests. Null: it runs, or has none.';
comment on column sft_examples.tick_protected is
  'Whether that reward counts protected evaluations only, which the agent can''t forge; null: there is no tick.';
comment on column sft_examples.preference is 'Correction that preference data add to its score; null: none.';
comment on column sft_examples.tags is 'Tags.';
comment on column sft_examples.round is 'Round that it was sampled in: from 0 in a cascade, from 1 in a tree search.';
comment on column sft_examples.depth is 'Depth of its node in a tree search, from 1; null: it was a whole candidate.';
comment on column sft_examples.tokens is 'Tokens that were sampled for it, before rewriting.';
comment on column sft_examples.prompt_tokens is 'Tokens of its prompt; null: the server did not report them.';
comment on column sft_examples.exact_prompt is
  'Whether the prompt can be rebuilt exactly: no block in it was shortened.';
comment on column sft_examples.was_rewritten is
  'Whether linting cut the sampled text to a legal structure that differs from it.';
comment on column sft_examples.candidate_id is 'The candidate that it was made of.';
comment on column sft_examples.step_id is 'The step that sampled it.';
comment on column sft_examples.created_at is 'When it was recorded.';
