-- A row for each block that was written after a query, or that is worth finding: an action that ran and was rewarded.
create view retrieval_examples as
select
  b.trace_id, b.index, b.id as block_id, t.job_id, j.name as job, j.agent, j.model, f.name as bootstrap,
  t.status as trace_status, b.tick, b.subagent, b.type, b.bm25_query as query, r.id as retrieval_id, h.hits, h.used,
  b.ran, b.score, k.reward as tick_reward, k.protected as tick_protected,
  coalesce(b.type = 'action' and b.ran and b.compiles and b.reward > 0, false) as known_good
from blocks b
join traces t on t.id = b.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
left join ticks k on k.trace_id = b.trace_id and k.number = b.tick
left join candidates c on c.id = b.candidate_id
left join lateral (
  select q.id from retrievals q join steps s on s.id = q.step_id
  where q.trace_id = b.trace_id and q.query = b.bm25_query and s.tick = b.tick and s.run = k.run and s.id < c.step_id
  order by s.id desc limit 1
) r on true
left join lateral (
  select count(*) as hits, count(*) filter (where l.used) as used from retrieval_hits l where l.retrieval_id = r.id
) h on true
-- Blocks that a fork shares with another trace count there.
where b.index >= coalesce(t.fork_at, 0)
  and (r.id is not null or b.type = 'action' and b.ran and b.compiles and b.reward > 0);

comment on view retrieval_examples is
  'A row for each block that was written after a query, and for each action that ran and was rewarded. Exported by the format retrieval.';
comment on column retrieval_examples.trace_id is 'Its trace.';
comment on column retrieval_examples.index is 'Index of the block in the trace, from 0.';
comment on column retrieval_examples.block_id is 'blocks.id.';
comment on column retrieval_examples.job_id is 'Its job.';
comment on column retrieval_examples.job is 'Name of the job.';
comment on column retrieval_examples.agent is 'The program that wrote the trace: weave, planning, ...';
comment on column retrieval_examples.model is
  'The model that writes the job''s traces; null: no model was asked yet.';
comment on column retrieval_examples.bootstrap is 'File name of the bootstrap.';
comment on column retrieval_examples.trace_status is 'queued, running, ended, failed or cancelled.';
comment on column retrieval_examples.tick is 'Number of its tick.';
comment on column retrieval_examples.subagent is 'Name of the subagent that wrote it.';
comment on column retrieval_examples.type is 'Its type.';
comment on column retrieval_examples.query is 'The query that the model wrote before the block; null: none.';
comment on column retrieval_examples.retrieval_id is 'retrievals.id of the query; null: no query was run.';
comment on column retrieval_examples.hits is 'Number of hits.';
comment on column retrieval_examples.used is 'Number of hits that were put into the prompt.';
comment on column retrieval_examples.ran is 'Whether the block ran without errors; null: it was not executed.';
comment on column retrieval_examples.score is 'Raw score: log odds after rewriting, without penalties.';
comment on column retrieval_examples.tick_reward is
  'The tick''s reward, 0 to 0.5; in a Harbor task that of its tests. Null: it runs, or has none.';
comment on column retrieval_examples.tick_protected is
  'Whether that reward counts protected evaluations only, which the agent can''t forge; null: there is no tick.';
comment on column retrieval_examples.known_good is 'Whether it is an action that ran and was rewarded.';
