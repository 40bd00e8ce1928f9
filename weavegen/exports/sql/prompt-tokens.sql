-- The token ids of the blocks in a prompt.
select index, token_ids::text from block_tokens
where trace_id = :trace and (index < :pinned or (index >= :first and index < :end)) order by index
