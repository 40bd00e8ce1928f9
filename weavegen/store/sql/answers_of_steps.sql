-- The answers that were stored by steps, with the words in which each question was asked.
select step_id, position, coalesce(wording, question) as asked, yes, no from scores where step_id = any(:steps)
