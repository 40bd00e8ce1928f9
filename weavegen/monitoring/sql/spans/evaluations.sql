select step_id, value, error, title as "gen_ai.evaluation.name", scope as "weavegen.evaluation.scope",
  protected as "weavegen.evaluation.protected", cause as "weavegen.evaluation.cause" from evaluations
where step_id = any(cast(:steps as bigint[])) order by step_id, position
