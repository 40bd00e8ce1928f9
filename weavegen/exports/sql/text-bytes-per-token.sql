-- Bytes per token of the blocks whose tokens were recorded; null: none were.
select sum(octet_length(b.rendered))::float / nullif(sum(array_length(k.token_ids, 1)), 0)
from block_tokens k join blocks b on b.trace_id = k.trace_id and b.index = k.index where k.trace_id = :trace
