create materialized view tick_stats as
with
  recorded as (
    select
      b.trace_id, b.tick, count(*) as blocks, sum(octet_length(rendered))::bigint as bytes,
      count(candidate_id) as written,
      count(*) filter (where type = 'action') as actions,
      count(*) filter (where type = 'error') as errors,
      count(*) filter (where type = 'debug') as debugs,
      count(*) filter (where type = 'backtrack') as backtracks,
      count(*) filter (where not compiles) as illegal,
      bool_or(ran) filter (where type = 'action') as action_ran,
      {store/action_answered} as action_answered,
      avg(score) filter (where type = 'action') as action_score
    from blocks b
    join traces t on t.id = b.trace_id
    where b.index >= coalesce(t.fork_at, 0)
    group by b.trace_id, b.tick
  ),
  done as (
    select
      trace_id, tick, count(*) as steps,
      count(*) filter (where kind = 'execute' and request ->> 'op' = 'try' and result ? 'not_tried') as not_tried,
      coalesce(sum(model_seconds), 0) as model_seconds,
      coalesce(sum(environment_seconds), 0) as environment_seconds,
      coalesce(sum(working_seconds - coalesce(model_seconds, 0) - coalesce(environment_seconds, 0)), 0)
        as own_seconds,
      coalesce(sum(extract(epoch from claimed_at - ready_at)::double precision), 0) as waiting_seconds
    from steps where kind not in ('work', 'delegate', 'await') and copy_of is null group by trace_id, tick
  ),
  sampled as (
    select
      s.trace_id, s.tick, count(*) as candidates, sum(c.tokens)::bigint as sampled_tokens,
      coalesce(sum(c.tokens) filter (where b.id is not null), 0)::bigint as kept_tokens
    from candidates c
    join steps s on s.id = c.step_id
    left join blocks b on b.candidate_id = c.id and b.trace_id = c.trace_id
    group by s.trace_id, s.tick
  )
select
  k.trace_id, k.number as tick, t.job_id, j.name as job, j.agent, j.model, f.name as bootstrap, k.subagent,
  k.reward as tick_reward, k.protected as tick_protected, k.not_evaluated, k.repeats, k.run as restarts, coalesce(r.blocks, 0) as blocks,
  coalesce(r.bytes, 0) as bytes, coalesce(r.written, 0) as written, coalesce(r.actions, 0) as actions,
  coalesce(r.errors, 0) as errors, coalesce(r.debugs, 0) as debugs, coalesce(r.backtracks, 0) as backtracks,
  coalesce(r.illegal, 0) as illegal,
  case when k.finished_at is null then r.action_ran else r.action_answered end as action_ran, r.action_score,
  coalesce(c.candidates, 0) as candidates,
  coalesce(c.sampled_tokens, 0) as sampled_tokens, coalesce(c.kept_tokens, 0) as kept_tokens,
  coalesce(d.not_tried, 0) as not_tried,
  coalesce(d.steps, 0) as steps, coalesce(d.model_seconds, 0) as model_seconds,
  coalesce(d.environment_seconds, 0) as environment_seconds, coalesce(d.own_seconds, 0) as own_seconds,
  coalesce(d.waiting_seconds, 0) as waiting_seconds,
  extract(epoch from k.finished_at)::double precision - k.clock - t.lag as seconds
from ticks k
join traces t on t.id = k.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
left join recorded r on r.trace_id = k.trace_id and r.tick = k.number
left join done d on d.trace_id = k.trace_id and d.tick = k.number
left join sampled c on c.trace_id = k.trace_id and c.tick = k.number
where t.fork_at is null or k.first_block >= t.fork_at or r.blocks is not null;

create unique index uq_tick_stats on tick_stats (trace_id, tick);

comment on materialized view tick_stats is
  'A row for each tick: counts of blocks and candidates, reward, and durations. Of a fork, only its own ticks. As of the last refresh.';
comment on column tick_stats.trace_id is 'Its trace.';
comment on column tick_stats.tick is 'Number of the tick in the trace; 0 is the bootstrap''s own.';
comment on column tick_stats.job_id is 'Its job.';
comment on column tick_stats.job is 'Name of the job.';
comment on column tick_stats.agent is 'The program that wrote the trace: weave, planning, ...';
comment on column tick_stats.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column tick_stats.bootstrap is 'File name of the bootstrap.';
comment on column tick_stats.subagent is 'Name of the subagent whose tick it is.';
comment on column tick_stats.tick_reward is
  'The tick''s reward, 0 to 0.5; in a Harbor task that of its tests. Null: it runs, or has none.';
comment on column tick_stats.tick_protected is
  'Whether that reward counts protected evaluations only, which the agent can''t forge; null: there is no tick.';
comment on column tick_stats.not_evaluated is
  'Protected evaluations that the reward leaves out, because they were not evaluated.';
comment on column tick_stats.repeats is 'Number of ticks in a row before it with the same actions and outcomes.';
comment on column tick_stats.restarts is 'How often it was started over.';
comment on column tick_stats.blocks is 'Blocks recorded.';
comment on column tick_stats.bytes is 'Bytes of their rendered text.';
comment on column tick_stats.written is 'Blocks made of a candidate.';
comment on column tick_stats.actions is 'Action blocks.';
comment on column tick_stats.errors is 'Error blocks.';
comment on column tick_stats.debugs is 'Debug blocks.';
comment on column tick_stats.backtracks is 'Backtrack blocks.';
comment on column tick_stats.illegal is 'Blocks that are not legal Python.';
comment on column tick_stats.action_ran is
  
  'Whether one of its actions ran without errors, with the answers that it waited for; null: none was executed.';
comment on column tick_stats.action_score is 'Mean raw score of its actions, log odds.';
comment on column tick_stats.candidates is
  'Sampled candidates, with rejected ones, queries and those of restarted runs.';
comment on column tick_stats.sampled_tokens is 'Tokens of these candidates.';
comment on column tick_stats.kept_tokens is 'Tokens of the candidates that became blocks.';
comment on column tick_stats.not_tried is
  'Blocks whose candidates could not be tried, so that the evaluator alone chose; an event says why.';
comment on column tick_stats.steps is
  'Steps that workers did, with those of restarted runs; none that only waits, and no copies of a fork.';
comment on column tick_stats.model_seconds is 'Seconds that its steps waited for the model server.';
comment on column tick_stats.environment_seconds is 'Seconds that its steps waited for the environment.';
comment on column tick_stats.own_seconds is 'Seconds of its steps that were spent on neither: weavegen''s own work.';
comment on column tick_stats.waiting_seconds is
  'Seconds from when its steps were ready to their last claim, with earlier attempts and with pauses.';
comment on column tick_stats.seconds is 'Duration in seconds; null: the tick was not over.';
