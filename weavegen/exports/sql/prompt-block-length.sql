-- The number of tokens of a block.
select array_length(token_ids, 1) from block_tokens where trace_id = :trace and index = :index
