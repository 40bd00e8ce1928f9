create materialized view tick_sums as
select
  k.*,
  -- Success is also null for a task without evaluations in any of the job's traces.
  case when t.status in ('ended', 'failed', 'cancelled')
    and sum(k.task_evaluations) over (partition by k.job_id, t.bootstrap_id) > 0 then {store/trace_success} end as success
from (select
  trace_id, job_id, sum(kept_tokens)::bigint as kept_tokens, sum(sampled_tokens)::bigint as sampled_tokens,
  avg(tick_reward) filter (where tick > 0) as reward,
  count(tick_reward) filter (where tick > 0) as rewarded_ticks,
  count(tick_reward) filter (where tick > 0 and tick_protected) as protected_ticks,
  sum(not_evaluated)::bigint as not_evaluated,
  sum(tick_reward) filter (where tick > 0) as total_reward,
  sum(actions)::bigint as actions, sum(errors)::bigint as errors, sum(debugs)::bigint as debugs,
  sum(backtracks)::bigint as backtracks, sum(illegal)::bigint as illegal, sum(not_tried)::bigint as not_tried,
  avg(action_ran::integer)::double precision as ran_share,
  count(*) filter (where repeats = 1) as loops, max(repeats) as longest_loop, sum(steps)::bigint as steps,
  sum(model_seconds) as model_seconds, sum(environment_seconds) as environment_seconds,
  sum(own_seconds) as own_seconds, sum(waiting_seconds) as waiting_seconds,
  (select count(*) from evaluations e where e.trace_id = k.trace_id and e.scope = 'task') as task_evaluations
from tick_stats k group by trace_id, job_id
) k join traces t on t.id = k.trace_id;

create unique index uq_tick_sums on tick_sums (trace_id);
create index ix_tick_sums_job_id on tick_sums (job_id);

comment on materialized view tick_sums is
  'Sums of tick_stats for each trace, and whether it succeeded; trace_stats has them from here.';
comment on column tick_sums.trace_id is 'Its trace.';
comment on column tick_sums.job_id is 'Its job.';
comment on column tick_sums.kept_tokens is 'Tokens of the candidates that became blocks.';
comment on column tick_sums.sampled_tokens is 'Tokens of all candidates of its ticks.';
comment on column tick_sums.reward is 'Mean reward of its ticks, without the bootstrap''s.';
comment on column tick_sums.rewarded_ticks is
  'Number of ticks with a reward. Of a fork only its own ticks count, here and below.';
comment on column tick_sums.protected_ticks is
  'Of these, ticks whose reward counts protected evaluations only, which the agent can''t forge.';
comment on column tick_sums.not_evaluated is
  'Protected evaluations that rewards leave out, because they were not evaluated.';
comment on column tick_sums.total_reward is 'Sum of the rewards.';
comment on column tick_sums.actions is 'Action blocks.';
comment on column tick_sums.errors is 'Error blocks.';
comment on column tick_sums.debugs is 'Debug blocks.';
comment on column tick_sums.backtracks is 'Backtrack blocks.';
comment on column tick_sums.illegal is 'Blocks that are not legal Python.';
comment on column tick_sums.not_tried is
  'Blocks whose candidates could not be tried, so that the evaluator alone chose; an event says why.';
comment on column tick_sums.ran_share is
  'Share of the ticks with an executed action in which an action ran without errors.';
comment on column tick_sums.loops is 'How often a tick repeated the tick before, after one that did not.';
comment on column tick_sums.longest_loop is
  'Highest number of ticks in a row that repeated the tick before: equal actions and outcomes.';
comment on column tick_sums.steps is 'Steps that workers did; none that only waits, and no copies of a fork.';
comment on column tick_sums.model_seconds is 'Seconds that its steps waited for the model server.';
comment on column tick_sums.environment_seconds is 'Seconds that its steps waited for the environment.';
comment on column tick_sums.own_seconds is 'Seconds of its steps that were spent on neither: weavegen''s own work.';
comment on column tick_sums.waiting_seconds is
  'Seconds from when its steps were ready to their last claim, with earlier attempts and with pauses.';
comment on column tick_sums.success is
  'Whether it returned with every evaluation of its task true at its last tick, and had one; of a Harbor task that '
  'was verified, whether every reward is at least 1. Null: it is not over, no trace of the job has an evaluation of '
  'its task, or none was false and one was not evaluated.';
comment on column tick_sums.task_evaluations is 'Number of evaluations of its task, over all ticks.';
