-- Withdraws the open steps of traces; with a tick, only those of this tick.
update steps set status = 'void'
where trace_id = any(:traces) and status in ('ready', 'running') and (tick = :tick or cast(:tick as bigint) is null)
