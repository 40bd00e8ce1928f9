-- Tools in the given version, else (null) in their newest one, in the order in which they were first made. description,
-- signature: those of the newest version. uses and successes: those of all versions. users: traces that have used the
-- tool. The others are as in tool_versions.sql.
select v.version, v.score, v.generality, v.made_by, v.searched_by, v.program, v.created_at, u.uses, u.successes,
  v.source, v.tests, v.evaluator, t.name, t.description, t.signature, u.users
from tools t
join lateral (
  select * from tool_versions
  where tool_id = t.id and (version = :version or cast(:version as integer) is null)
  order by version desc limit 1
) v on true
cross join lateral (
  select count(*) as uses, count(*) filter (where success) as successes, count(distinct trace_id) as users
  from tool_uses join tool_versions o on o.id = tool_version_id where o.tool_id = t.id
) u
where t.name = any(:names) or cast(:names as text[]) is null order by t.id
