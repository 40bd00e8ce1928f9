-- Rows of the view, and how sampling ended.
select x.*, c.finish_reason from sft_examples x join candidates c on c.id = x.candidate_id
where x.trace_id = :trace and x.block_id = any(cast(:block_id as bigint[]))
