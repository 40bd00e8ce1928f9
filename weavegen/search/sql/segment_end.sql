-- The index after the last block of a trace's next segment; no row: too few blocks wait below :before.
select index + 1 from blocks where trace_id = :trace and index >= :first and index < :before and type = any(:types)
order by index offset :blocks - 1 limit 1
