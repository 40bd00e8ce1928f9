-- Changes what the user asks for.
update requests set objective = :objective, requirements = cast(:requirements as jsonb),
  constraints = cast(:constraints as jsonb), revision = revision + 1
where id = :request
