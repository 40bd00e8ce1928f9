-- Every text sampled for a block, with its value in preference data: the score that it was selected by, and for the
-- text that became the block a correction by its outcome.
create view candidate_values as
select
  c.id as candidate_id, c.trace_id, c.block_index as index, t.job_id, j.name as job, j.agent, j.model,
  f.name as bootstrap, t.status as trace_status, s.tick, c.type, c.step_id, c.position, c.round, c.depth, c.text,
  c.tokens, c.finish_reason, n.compiles, q.score, e.penalty,
  -- A text that does not compile loses its score above 4, as in selection. Null: it was never scored, or not linted.
  q.score - case when n.syntax > 0 and q.score > 4 then q.score else 0 end - e.penalty
    + coalesce(b.preference, 0) as value,
  b.preference, b.id as block_id, o.ran, o.ran is false as failed,
  -- An evaluation that raised has no value and counts as not true, as in selection.
  (select avg(coalesce((e ->> 'value' = 'true')::int, 0)) from jsonb_array_elements(r.evaluations) e
    where e ->> 'scope' = 'task') as achieved,
  k.reward as tick_reward, k.protected as tick_protected
from candidates c
join steps s on s.id = c.step_id
join ticks k on {store/tick_of_step}
join traces t on t.id = c.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
left join penalties n on n.candidate_id = c.id
left join lateral (
  select n.syntax + n.extra_elements + n.not_a_string + n.code_in_prose + n.shape + n.wrong_name + n.title
    + n.assertions + n.forbidden_calls + n.length_after_debug as penalty
) e on true
left join lateral (
  select avg(a.score) as score from scores a where a.candidate_id = c.id and a.stage = 'selection'
) q on true
left join blocks b on b.candidate_id = c.id and b.trace_id = c.trace_id
left join trials r on r.candidate_id = c.id
-- Code that called a subagent has no result of its own: its correction says whether the block with the answer failed.
left join lateral (
  select coalesce(
    b.ran, case when b.compiles and b.type in ('action', 'evaluation') and b.preference < 0 then false end, r.ran
  ) as ran
) o on true
where c.type not in ('bm25-query', 'next-type');

comment on view candidate_values is
  'Every text sampled for a block, with its value: score minus penalties, plus the preference correction for the text that became the block.';
comment on column candidate_values.candidate_id is 'candidates.id.';
comment on column candidate_values.trace_id is 'Its trace.';
comment on column candidate_values.index is 'Index of the block that it was sampled for.';
comment on column candidate_values.job_id is 'Its job.';
comment on column candidate_values.job is 'Name of the job.';
comment on column candidate_values.agent is 'The program that wrote the trace: weave, planning, ...';
comment on column candidate_values.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column candidate_values.bootstrap is 'File name of the bootstrap.';
comment on column candidate_values.trace_status is 'queued, running, ended, failed or cancelled.';
comment on column candidate_values.tick is 'Number of its tick.';
comment on column candidate_values.type is 'Type of the block that it was sampled for.';
comment on column candidate_values.step_id is 'The step that sampled it, with its prompt.';
comment on column candidate_values.position is 'Position among the candidates of its step, from 0.';
comment on column candidate_values.round is 'Number of the round: from 0 in a cascade, from 1 in a tree search.';
comment on column candidate_values.depth is 'Depth of the node in a tree search, from 1; null: a whole candidate.';
comment on column candidate_values.text is 'The body as sampled, from its beginning.';
comment on column candidate_values.tokens is 'Sampled tokens.';
comment on column candidate_values.finish_reason is 'stop or length, as the server said.';
comment on column candidate_values.compiles is 'Whether it is legal Python; null: it was not linted.';
comment on column candidate_values.score is
  'Score: mean log odds over its questions, without penalties; null: never scored.';
comment on column candidate_values.penalty is 'Sum of what linting subtracted for selection; null: it was not linted.';
comment on column candidate_values.value is
  'Score minus penalties, plus the preference correction if it became the block; null: never scored.';
comment on column candidate_values.achieved is
  'Share of the task''s evaluations that were true after it when it was tried, 0 to 1; null: none was run.';
comment on column candidate_values.preference is
  'Preference correction by its outcome; null: none, or it did not become a block.';
comment on column candidate_values.block_id is 'The block that it became; null: it was not chosen.';
comment on column candidate_values.ran is
  'Whether it ran without errors, as a block, with the answers that it waited for, or when it was tried; null: not known.';
comment on column candidate_values.failed is 'Whether it was executed, or tried, and failed.';
comment on column candidate_values.tick_reward is
  'The tick''s reward, 0 to 0.5; in a Harbor task that of its tests. Null: it runs, or has none.';
comment on column candidate_values.tick_protected is
  'Whether that reward counts protected evaluations only, which the agent can''t forge; null: there is no tick.';
