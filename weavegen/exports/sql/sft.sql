-- Rows of the view.
select * from sft_examples where trace_id = :trace and block_id = any(cast(:ids as bigint[]))
