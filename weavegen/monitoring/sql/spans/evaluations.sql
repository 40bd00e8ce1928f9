select step_id, title, scope, value, error from evaluations
where step_id = any(cast(:steps as bigint[])) order by step_id, position
