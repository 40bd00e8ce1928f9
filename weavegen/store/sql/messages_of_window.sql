-- Blocks of a conversation. A message that the model wrote has the sampled text and token ids (null where they are not
-- kept). Other blocks have their body as text, and no token ids.
select b.index, b.type, coalesce(c.text, b.body) as text, c.token_ids
from blocks b left join candidates c on c.id = b.candidate_id and b.type = 'assistant'
where b.trace_id = :trace and b.index >= :first and b.index < :end order by b.index
