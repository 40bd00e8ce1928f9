-- The newest version of a tool.
select version, source from tool_versions where tool_id = :tool order by version desc limit 1
