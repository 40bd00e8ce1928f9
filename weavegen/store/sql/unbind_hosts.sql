-- Lets any host rebuild the environments of these traces, or of all (null), whose rows are deleted.
with gone as (
  delete from environments
  where closed_at is null and (trace_id = any(:traces) or cast(:traces as bigint[]) is null)
)
update steps set queue = 'execute'
where status in ('ready', 'running') and queue like 'execute.%'
  and (trace_id = any(:traces) or cast(:traces as bigint[]) is null)
