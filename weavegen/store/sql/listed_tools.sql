-- The tools of the MCP servers as the newest run of a trace's first tick listed them.
select result -> 'value' from steps
where trace_id = :trace and tick = 0 and status = 'done' and request ->> 'op' = 'tools' order by run desc limit 1
