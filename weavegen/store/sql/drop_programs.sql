-- Deletes the programs of a search from :number on.
delete from programs where trace_id = :trace and number >= :number
