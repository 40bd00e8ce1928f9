-- Stores a version of a tool, unless the newest version has this source. Returns the number of the one that has it.
with newest as (
  select version, source from tool_versions where tool_id = :tool order by version desc limit 1
), made as (
  insert into tool_versions (
    tool_id, version, source, tests, evaluator, score, generality, made_by, searched_by, program
  )
  select :tool, coalesce((select version from newest), 0) + 1, :source, :tests, :evaluator, :score, :generality, :made_by,
    :searched_by, :program
  where not exists (select from newest where source = :source)
  returning version
)
select version from made union all select version from newest where source = :source
