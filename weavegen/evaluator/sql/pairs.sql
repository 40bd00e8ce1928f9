-- The evaluator's scores of question :question in job :job, with the right answers.
select score, answer, trace_id from calibration_pairs
where job_id = :job and campaign is null and question = :question and exact and score is not null
order by block_id
