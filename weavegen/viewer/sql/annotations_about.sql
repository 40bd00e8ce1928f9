-- What people say about a candidate, a block, or a trace, as columns of the same names in other queries.
select author, verdict, labels, note, left((changed_at at time zone 'UTC')::text, 16) as at
from annotations
where trace_id = :trace_id and block_id is not distinct from cast(:block_id as bigint)
  and candidate_id is not distinct from cast(:candidate_id as bigint)
order by id
