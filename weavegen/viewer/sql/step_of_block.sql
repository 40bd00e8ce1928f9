-- The step that sampled the candidate that became a block, and its trace, which is another one in a fork.
select c.trace_id, c.step_id from blocks b join candidates c on c.id = b.candidate_id
where b.trace_id = :trace and b.index = :index
