-- The newest requests other than one, each with the reason of its last change and the library's tools that it called.
select r.id as number, r.objective, r.requirements, r.constraints, r.status, r.result,
  (select reason from request_changes where request_id = r.id order by id desc limit 1) as reason,
  array(
    select distinct t.name from tool_uses u
    join tool_versions v on v.id = u.tool_version_id join tools t on t.id = v.tool_id
    where u.trace_id = r.trace_id order by 1
  ) as tools
from requests r where r.id is distinct from cast(:other as bigint) order by r.id desc limit 2000
