-- Stores what a correction does to a question.
insert into corrected_questions (
  correction_id, question, slope, intercept, labels, positives, brier_before, brier_after
)
values (:correction, :question, :slope, :intercept, :labels, :positives, :brier_before, :brier_after)
