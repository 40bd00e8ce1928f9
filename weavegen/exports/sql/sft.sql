-- Rows of the view.
select * from sft_examples where trace_id = :trace and block_id = any(cast(:block_id as bigint[]))
