-- Stores the question of an assertion, and whether it held.
insert into grounded_labels (trace_id, step_id, position, question, answer)
values (:trace, :step, :position, :question, :answer)
