create view learning_curves as
select
  job_id, job, agent, model, bootstrap, tick, count(*) as traces, avg(tick_reward) as reward,
  round(sum(candidates)::numeric / nullif(sum(written), 0), 4)::double precision as candidates_per_block,
  avg(errors)::double precision as errors, avg(actions)::double precision as actions,
  avg(action_ran::integer)::double precision as ran_share,
  avg((repeats > 0)::integer)::double precision as repeating_share, avg(seconds) as seconds
from tick_stats
where tick > 0 and tick_reward is not null
group by job_id, job, agent, model, bootstrap, tick;

comment on view learning_curves is
  'Means by tick number: a row for each job, bootstrap and number, over the traces that got so far. As of the last refresh.';
comment on column learning_curves.job_id is 'The job.';
comment on column learning_curves.job is 'Its name.';
comment on column learning_curves.agent is 'The program that wrote the traces: weave, planning, ...';
comment on column learning_curves.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column learning_curves.bootstrap is 'File name of the bootstrap.';
comment on column learning_curves.tick is 'Number of the tick, from 1.';
comment on column learning_curves.traces is
  'Ticks with that number that have a reward. Use it as weight when you average rows.';
comment on column learning_curves.reward is 'Mean reward of these ticks.';
comment on column learning_curves.candidates_per_block is
  'Sampled candidates, queries included, for each block made of one.';
comment on column learning_curves.errors is 'Mean number of error blocks.';
comment on column learning_curves.actions is 'Mean number of action blocks.';
comment on column learning_curves.ran_share is
  'Share of ticks in which an action ran without errors, among those that executed one.';
comment on column learning_curves.repeating_share is
  'Share of ticks with the same actions and outcomes as the tick before.';
comment on column learning_curves.seconds is 'Mean duration in seconds.';
