-- What the nodes of a trace say about it, and whether other traces are forks or retries of it.
select t.id as trace_id, t.fork_of, j.name as job, f.name as bootstrap,
  case when jsonb_typeof(t.returned -> 'success') = 'boolean' then (t.returned -> 'success')::boolean::int end as score,
  case when jsonb_typeof(t.returned -> 'reward') = 'number' then (t.returned -> 'reward')::float end as reward,
  exists (select from traces o where t.id in (o.fork_of, o.retry_of)) as continued
from traces t join jobs j on j.id = t.job_id join bootstraps f on f.id = t.bootstrap_id where t.id = :trace
