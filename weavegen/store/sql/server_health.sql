-- Servers at which requests failed, each with its last error. A server fails if at least 3 requests in a row failed,
-- one of them in the last 5 minutes: servers that rest are probed at least every 2 minutes while workers run.
select url, sum(errors)::bigint as errors, sum(errors_since_ok)::bigint as errors_since_ok,
  (array_agg(last_error order by last_error_at desc))[1] as last_error,
  (array_agg(kind order by last_error_at desc))[1] as kind,
  max(last_error_at) as last_error_at, max(last_ok_at) as last_ok_at,
  greatest(0, extract(epoch from clock_timestamp() - max(last_error_at)))::double precision as age,
  sum(errors_since_ok) >= 3 and max(last_error_at) > clock_timestamp() - interval '5 minutes' as failing,
  jsonb_object_agg(kind, errors) as by_kind
from server_health where url = any(:urls) group by url order by url
