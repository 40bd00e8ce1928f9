-- Deletes the blocks of a trace from :first on.
delete from blocks where trace_id = :trace and index >= :first
