-- A page of a trace's texts, with their numbers of tokens where these were recorded.
select b.index, b.rendered, array_length(k.token_ids, 1) as tokens
from blocks b left join block_tokens k on k.trace_id = b.trace_id and k.index = b.index
where b.trace_id = :trace and b.index >= :first order by b.index limit :limit
