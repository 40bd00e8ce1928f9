select c.trace_id as trace, s.tick, c.block_index as index from candidates c join steps s on s.id = c.step_id
where c.id = :id
