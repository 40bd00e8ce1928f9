create view penalty_stats as
select
  c.job_id, c.job, c.agent, c.model, c.bootstrap, c.type, p.penalty, sum(c.linted)::bigint as linted,
  sum(p.penalised)::bigint as penalised,
  round(sum(p.penalised) / nullif(sum(c.linted), 0), 4)::double precision as share
from candidate_stats c
cross join lateral (
  values
    ('syntax', c.syntax),
    ('extra_elements', c.extra_elements),
    ('not_a_string', c.not_a_string),
    ('code_in_prose', c.code_in_prose),
    ('shape', c.shape),
    ('wrong_name', c.wrong_name),
    ('title', c.title),
    ('assertions', c.assertions),
    ('forbidden_calls', c.forbidden_calls),
    ('length_after_debug', c.length_after_debug)
) p (penalty, penalised)
where c.linted > 0
group by c.job_id, c.job, c.agent, c.model, c.bootstrap, c.type, p.penalty;

comment on view penalty_stats is
  'Penalties by kind: a row for each job, bootstrap, type and penalty. As of the last refresh.';
comment on column penalty_stats.job_id is 'The job.';
comment on column penalty_stats.job is 'Its name.';
comment on column penalty_stats.agent is 'The program that wrote the traces: weave, planning, ...';
comment on column penalty_stats.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column penalty_stats.bootstrap is 'File name of the bootstrap.';
comment on column penalty_stats.type is 'Block type that the candidates were sampled for.';
comment on column penalty_stats.penalty is 'Name of the penalty: a column of the table penalties.';
comment on column penalty_stats.linted is 'Candidates that were linted.';
comment on column penalty_stats.penalised is 'Linted candidates with the penalty.';
comment on column penalty_stats.share is 'Share of the linted candidates that have the penalty.';
