-- The answers that were stored by steps.
select step_id, position, question, yes, no from scores where step_id = any(:steps)
