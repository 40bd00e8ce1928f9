-- Copies the token ids of the blocks before the cut.
insert into block_tokens (trace_id, index, token_ids)
select :child, index, token_ids from block_tokens where trace_id = :parent and index < :at
