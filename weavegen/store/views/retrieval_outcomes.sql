create materialized view retrieval_outcomes as
select
  h.id as hit_id, r.trace_id, s.tick, t.job_id, j.name as job, j.agent, j.model, f.name as bootstrap, h.rank,
  h.score, h.block_id, h.example_id, coalesce(b.type, x.type) as recalled_type, b.trace_id as from_trace_id,
  b.ran as recalled_ran, k.reward as tick_reward,
  case when k.finished_at is null then a.ran else a.answered end as action_ran
from retrieval_hits h
join retrievals r on r.id = h.retrieval_id
join steps s on s.id = r.step_id
join traces t on t.id = r.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
-- What a run that was started over would have led to is not known.
left join ticks k on {store/tick_of_step}
left join blocks b on b.id = h.block_id
left join examples x on x.id = h.example_id
left join (
  select trace_id, tick, bool_or(ran) as ran, {store/action_answered} as answered
  from blocks where type = 'action' group by trace_id, tick
) a on a.trace_id = r.trace_id and a.tick = k.number
where h.used;

create unique index uq_retrieval_outcomes on retrieval_outcomes (hit_id);
-- Queries about retrieved blocks read this index alone, in a third of the time.
create index ix_retrieval_outcomes_block_id on retrieval_outcomes (block_id)
include (tick_reward, action_ran, recalled_type, from_trace_id, recalled_ran);

comment on materialized view retrieval_outcomes is
  'A row for each retrieved text that was put into a prompt: what it was, and how the tick ended. As of the last refresh.';
comment on column retrieval_outcomes.hit_id is 'retrieval_hits.id.';
comment on column retrieval_outcomes.trace_id is 'The trace that retrieved it.';
comment on column retrieval_outcomes.tick is 'Number of the tick in which it was retrieved.';
comment on column retrieval_outcomes.job_id is 'Job of that trace.';
comment on column retrieval_outcomes.job is 'Name of that job.';
comment on column retrieval_outcomes.agent is 'The program that wrote the traces: weave, planning, ...';
comment on column retrieval_outcomes.model is
  'The model that writes the job''s traces; null: no model was asked yet.';
comment on column retrieval_outcomes.bootstrap is 'File name of the bootstrap.';
comment on column retrieval_outcomes.rank is 'Rank among the hits, from 1, the best.';
comment on column retrieval_outcomes.score is 'BM25 score.';
comment on column retrieval_outcomes.block_id is 'The retrieved block; null: an example was retrieved.';
comment on column retrieval_outcomes.example_id is 'The retrieved example; null: a block was retrieved.';
comment on column retrieval_outcomes.recalled_type is 'Type of the retrieved block or example.';
comment on column retrieval_outcomes.from_trace_id is
  'Trace of the retrieved block. With the setting `memory` it may be another trace.';
comment on column retrieval_outcomes.recalled_ran is
  'Whether the retrieved block had run without errors; null: it was not executed, or is an example.';
comment on column retrieval_outcomes.tick_reward is
  'The tick''s reward, 0 to 0.5; in a Harbor task that of its tests. Null: it runs, was started over since, or has none.';
comment on column retrieval_outcomes.action_ran is
  'Whether an action of the tick ran without errors; null: none was executed, or the tick was started over since.';
