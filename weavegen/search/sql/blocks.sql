-- The fields of documents.Document.
select b.id, b.trace_id, t.job_id, b.index,
  coalesce(case when b.compiles and b.ran is not false then b.score end, 'NaN') as good,
  extract(epoch from b.created_at)::double precision as recorded, b.type, b.body
from blocks b join traces t on t.id = b.trace_id where b.id = any(:ids) order by b.id
