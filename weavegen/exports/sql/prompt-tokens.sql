-- The token ids of the blocks in a prompt.
select k.index as at, k.token_ids::text as token_ids, b.type from block_tokens k join blocks b using (trace_id, index)
where k.trace_id = :trace and (k.index < :pinned or (k.index >= :first and k.index < :end)) order by k.index
