-- What a correction does to each question.
select q.question, q.slope, q.intercept
from corrections c join corrected_questions q on q.correction_id = c.id where c.name = :name order by q.question
