-- Stores a version of a tool.
insert into tool_versions (
  tool_id, version, source, tests, evaluator, score, generality, made_by, searched_by, program
)
values (
  :tool, :version, :source, :tests, :evaluator, :score, :generality, :made_by, :searched_by, :program
)
