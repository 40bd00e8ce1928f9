-- Stores what came of a candidate that ran in a copy of the environment.
insert into trials (
  trace_id, step_id, candidate_id, ran, not_tried, exception, error, value, assertions, evaluations, views, output,
  seconds
)
values (
  :trace, :step, :candidate, :ran, :not_tried, :exception, :error, cast(:value as jsonb), cast(:assertions as jsonb),
  cast(:evaluations as jsonb), cast(:views as jsonb), :output, :seconds
)
