-- The same fields; an example belongs to no trace.
select id, 0 as trace_id, 0 as job_id, 0 as index, 'NaN'::double precision as good, 0.0::double precision as recorded,
  type, body
from examples where id = any(:ids) order by id
