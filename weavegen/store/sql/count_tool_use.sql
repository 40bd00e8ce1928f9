-- Records a call of a tool.
insert into tool_uses (tool_version_id, trace_id, success)
select v.id, :trace, :success from tool_versions v join tools t on t.id = v.tool_id
where t.name = :name and v.version = :version
