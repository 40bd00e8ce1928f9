create materialized view evaluator_calibration as
select
  t.job_id, j.name as job, j.agent, j.model, b.type, b.question, least(floor(10 * p.yes), 9)::integer as bin,
  count(*) as labels, avg(p.yes) as predicted, avg(b.ran::integer)::double precision as observed,
  avg((p.yes - b.ran::integer) ^ 2) as brier
from blocks b
cross join lateral (select case when b.answer then b.probability else 1 - b.probability end as yes) p
join traces t on t.id = b.trace_id
join jobs j on j.id = t.job_id
where b.index >= coalesce(t.fork_at, 0) and b.ran is not null and b.probability is not null
  and b.question is not null
group by t.job_id, j.name, j.agent, j.model, b.type, b.question, 7;

create unique index uq_evaluator_calibration on evaluator_calibration (job_id, type, question, bin);

comment on materialized view evaluator_calibration is
  'The evaluator''s probabilities for executed blocks, compared with whether these ran: a row for each job, type, question and tenth of the probability. As of the last refresh.';
comment on column evaluator_calibration.job_id is 'The job.';
comment on column evaluator_calibration.job is 'Its name.';
comment on column evaluator_calibration.agent is 'The program that wrote the traces: weave, planning, ...';
comment on column evaluator_calibration.model is
  'The model that writes the job''s traces; null: no model was asked yet.';
comment on column evaluator_calibration.type is 'Type of the blocks.';
comment on column evaluator_calibration.question is 'The evaluator''s question about the blocks.';
comment on column evaluator_calibration.bin is 'Tenth of the probability of yes: 0 is below 0.1, 9 is 0.9 and more.';
comment on column evaluator_calibration.labels is 'Number of blocks. Use it as weight when you average rows.';
comment on column evaluator_calibration.predicted is 'Mean probability of yes.';
comment on column evaluator_calibration.observed is 'Share of the blocks that ran without errors.';
comment on column evaluator_calibration.brier is 'Mean squared difference between probability and outcome.';
