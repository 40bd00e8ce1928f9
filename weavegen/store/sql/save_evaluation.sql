-- Stores the result of an evaluation callback.
insert into evaluations (trace_id, step_id, tick, position, scope, title, value, error, protected, cause)
values (:trace, :step, :tick, :position, :scope, :title, cast(:value as jsonb), :error, :protected, :cause)
