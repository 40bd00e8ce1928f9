select run, ordinal, kind, label, status, claims, failure, model_seconds, environment_seconds,
  extract(epoch from ready_at)::float as ready, extract(epoch from claimed_at)::float as claimed,
  extract(epoch from finished_at)::float as finished, extract(epoch from now())::float as now
from steps where trace_id = :trace and tick = :tick order by run, ordinal limit 2000
