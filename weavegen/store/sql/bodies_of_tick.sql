-- The bodies of the blocks of a tick.
select index, body from blocks where trace_id = :trace and tick = :tick
