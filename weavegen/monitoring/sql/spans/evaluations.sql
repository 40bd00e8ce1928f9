-- Results of evaluations. Those that are neither a number nor true or false have no score.
select step_id, title as "gen_ai.evaluation.name", scope as "weavegen.evaluation.scope",
  protected as "weavegen.evaluation.protected", cause as "weavegen.evaluation.cause",
  case jsonb_typeof(value)
    when 'number' then (value #>> '{}')::double precision when 'boolean' then (value = 'true')::int::double precision
  end as "gen_ai.evaluation.score.value",
  case when jsonb_typeof(value) = 'boolean' then case when value = 'true' then 'pass' else 'fail' end end as "gen_ai.evaluation.score.label",
  case when error is not null then 'evaluation_error' end as "error.type"
from evaluations where step_id = any(cast(:steps as bigint[])) order by step_id, position
