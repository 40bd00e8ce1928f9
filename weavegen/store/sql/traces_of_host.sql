-- The traces with an open environment or an open step on a host, unless a worker that takes the host's steps has
-- reported within `silent` seconds.
select distinct s.trace_id
from (
  select trace_id, 'execute.' || host as queue from environments where closed_at is null
  union all
  select trace_id, queue from steps where status in ('ready', 'running')
) s
where s.queue = 'execute.' || :host and not {store/queue_is_served}
