-- The traces among these that are over, so that nothing in them changes.
select id from traces
where id = any(cast(:traces as bigint[])) and status in ('ended', 'failed', 'cancelled')
