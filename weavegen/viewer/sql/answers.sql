-- The evaluator's answers about candidates, in the order of the questions.
select candidate_id, stage, question, yes, no, score from scores where candidate_id = any(:ids) order by id
