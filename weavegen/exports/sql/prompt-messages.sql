-- The messages [first, end) of a conversation as the model read them. sampled: as the tokens that it sampled.
select b.index as at, b.type, coalesce(c.text, b.body) as text, c.token_ids is not null as sampled
from blocks b
left join candidates c on c.id = b.candidate_id
where b.trace_id = :trace and b.index >= :first and b.index < :end and b.type = any(:types) order by b.index
