create materialized view block_stats as
select
  t.job_id, j.name as job, j.agent, j.model, f.name as bootstrap, b.type, sum(b.blocks)::bigint as blocks,
  sum(b.bytes)::bigint as bytes, sum(b.written)::bigint as written, sum(b.legal)::bigint as legal,
  sum(b.executed)::bigint as executed, sum(b.ran)::bigint as ran, sum(b.scored)::bigint as scored,
  sum(b.score) / nullif(sum(b.scored), 0) as mean_score, sum(b.reward) / nullif(sum(b.rewarded), 0) as mean_reward
from (
  select
    b.trace_id, b.type, count(*) as blocks, sum(octet_length(rendered)) as bytes, count(candidate_id) as written,
    count(*) filter (where compiles) as legal, count(ran) as executed, count(*) filter (where ran) as ran,
    count(score) as scored, sum(score) as score, count(reward) as rewarded, sum(reward) as reward
  from blocks b
  join traces t on t.id = b.trace_id
  where b.index >= coalesce(t.fork_at, 0)
  group by b.trace_id, b.type
) b
join traces t on t.id = b.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
group by t.job_id, j.name, j.agent, j.model, f.name, b.type;

create unique index uq_block_stats on block_stats (job_id, bootstrap, type);

comment on materialized view block_stats is
  'Blocks by type: a row for each job, bootstrap and type. Copies in forks do not count. As of the last refresh.';
comment on column block_stats.job_id is 'The job.';
comment on column block_stats.job is 'Its name.';
comment on column block_stats.agent is 'The program that wrote the traces: weave, planning, ...';
comment on column block_stats.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column block_stats.bootstrap is 'File name of the bootstrap.';
comment on column block_stats.type is 'Type of the blocks: orientation, action, ...';
comment on column block_stats.blocks is 'Number of blocks.';
comment on column block_stats.bytes is 'Bytes of their rendered text.';
comment on column block_stats.written is 'Blocks made of a candidate.';
comment on column block_stats.legal is 'Blocks that are legal Python.';
comment on column block_stats.executed is 'Blocks that were executed.';
comment on column block_stats.ran is 'Executed blocks that ran without errors.';
comment on column block_stats.scored is 'Blocks with a raw score.';
comment on column block_stats.mean_score is 'Mean raw score of the scored blocks, log odds.';
comment on column block_stats.mean_reward is 'Mean share of the tick''s reward, over the blocks that get one.';
