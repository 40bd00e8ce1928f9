-- counter trace_failures: Failed traces by kind of failure.
select kind, count(t.id) as trace_failures
from (select unnest(array['model', 'environment', 'bootstrap', 'bug'])
      union select coalesce(failure_kind, 'unknown') from traces where status = 'failed') kinds (kind)
left join traces t on t.status = 'failed' and coalesce(t.failure_kind, 'unknown') = kind group by kind
