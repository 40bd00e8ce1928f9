-- A few blocks of traces, with their token ids.
select b.rendered, k.token_ids from block_tokens k
join blocks b on b.trace_id = k.trace_id and b.index = k.index
where k.trace_id = any(cast(:traces as bigint[])) and k.index >= 2
order by k.trace_id, k.index limit :blocks
