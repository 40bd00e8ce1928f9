-- The fields of user_search.FoundText, without the score.
select b.id as block, null::bigint as example, t.job_id, b.trace_id, b.index, b.created_at, b.type, b.body
from blocks b join traces t on t.id = b.trace_id where b.id = any(:blocks)
union all
select null, id, null, null, null, null, type, body from examples where id = any(:examples)
