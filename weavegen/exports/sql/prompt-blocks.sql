-- Some rendered blocks of a trace.
select index, rendered from blocks where trace_id = :trace and index = any(:indexes)
