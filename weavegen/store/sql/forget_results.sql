-- Empties the results of a tick's steps of these kinds.
update steps set result = null where trace_id = :trace and tick = :tick and kind = any(:kinds)
