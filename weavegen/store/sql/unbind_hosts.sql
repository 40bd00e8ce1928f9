-- Lets any host do the open steps of these traces, or of all (null).
update steps set queue = 'execute'
where status in ('ready', 'running') and queue like 'execute.%'
  and (trace_id = any(cast(:traces as bigint[])) or cast(:traces as bigint[]) is null)
