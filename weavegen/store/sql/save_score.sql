-- Stores the model's answer to a question about a text.
insert into scores (trace_id, step_id, candidate_id, position, stage, rubric, question, wording, yes, no, score)
values (:trace, :step, :candidate, :position, :stage, :rubric, :question, :wording, :yes, :no, :score)
