-- The versions of a tool. made_by: the toolsmith's trace. searched_by, program: the trace of the search that found it,
-- and the program's number there; null: no search did. successes: calls that returned a value.
select v.version, v.score, v.generality, v.made_by, v.searched_by, v.program, v.created_at,
  (select count(*) from tool_uses where tool_version_id = v.id) as uses,
  (select count(*) from tool_uses where tool_version_id = v.id and success) as successes,
  v.source, v.tests, v.evaluator
from tool_versions v join tools t on t.id = v.tool_id where t.name = :name order by v.version
