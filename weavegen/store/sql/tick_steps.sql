-- The steps of one run of a tick. origin: the step of another trace that a step is a copy of, or the step itself.
select id, ordinal, kind, status, request, result, failure_kind, failure,
  extract(epoch from finished_at)::double precision as at,
  coalesce(copy_of, id) as origin
from steps where trace_id = :trace and tick = :tick and run = :run order by ordinal
