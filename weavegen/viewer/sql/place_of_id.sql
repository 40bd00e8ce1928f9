-- The trace and block of a candidate.
select trace_id, block_index from candidates where id = :id
