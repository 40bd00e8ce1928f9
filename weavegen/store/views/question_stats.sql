create materialized view question_stats as
select
  t.job_id, j.name as job, j.agent, j.model, s.rubric, s.stage, s.question, sum(s.asked)::bigint as asked,
  sum(s.yes) / sum(s.asked) as yes, sum(s.no) / sum(s.asked) as no,
  1 - (sum(s.yes) + sum(s.no)) / sum(s.asked) as neither, sum(s.score) / nullif(sum(s.scored), 0) as mean_score,
  sum(s.asked - s.scored)::bigint as undefined, sum(s.unsure)::bigint as unsure
from (
  select
    trace_id, rubric, stage, question, count(*) as asked, sum(yes) as yes, sum(no) as no, sum(score) as score,
    count(score) as scored, count(*) filter (where abs(score) < 0.5) as unsure
  from scores group by trace_id, rubric, stage, question
) s
join traces t on t.id = s.trace_id
join jobs j on j.id = t.job_id
group by t.job_id, j.name, j.agent, j.model, s.rubric, s.stage, s.question;

create unique index uq_question_stats on question_stats (job_id, rubric, stage, question);

comment on materialized view question_stats is
  'Answers of the evaluator: a row for each job, rubric, stage and question. As of the last refresh.';
comment on column question_stats.job_id is 'The job.';
comment on column question_stats.job is 'Its name.';
comment on column question_stats.agent is 'The program that wrote the traces: weave, planning, ...';
comment on column question_stats.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column question_stats.rubric is 'Version of the rubric and its calibration examples.';
comment on column question_stats.stage is
  'selection: of candidates as sampled; raw: of blocks as rewritten; option: of the model itself.';
comment on column question_stats.question is 'The question.';
comment on column question_stats.asked is 'Number of answers.';
comment on column question_stats.yes is 'Mean probability mass of yes.';
comment on column question_stats.no is 'Mean probability mass of no.';
comment on column question_stats.neither is 'Mean probability mass that went to neither.';
comment on column question_stats.mean_score is 'Mean log odds, over the answers that have any.';
comment on column question_stats.undefined is 'Answers with no mass on yes or no.';
comment on column question_stats.unsure is 'Answers with log odds between -0.5 and 0.5.';
