-- Empties the results of a finished tick's steps of these kinds. It is not replayed again, and the typed tables hold the
-- values.
update steps set result = null where trace_id = :trace and tick = :tick and kind = any(:kinds)
