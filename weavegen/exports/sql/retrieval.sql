-- Rows of the view with their blocks' bodies.
select v.*, b.body from retrieval_examples v join blocks b on b.id = v.block_id
where v.trace_id = :trace and v.block_id = any(cast(:block_id as bigint[]))
