select id, type, body from blocks
where trace_id = :trace and index >= :first and index < :end and type = any(:types) order by index
