-- Cancels queued and running traces. which: a condition on traces.
update traces set status = 'cancelled', finished_at = clock_timestamp()
where {which} and status in ('queued', 'running')
returning id
