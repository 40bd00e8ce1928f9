select j.id, j.name, j.agent, j.model, j.asked_model, j.seed, j.version, j.enqueued_by, j.created_at, j.state,
  j.called_by, j.paused_seconds,
  (select min(started_at) from traces where job_id = j.id) as started_at,
  (select max(finished_at) from traces where job_id = j.id) as finished_at,
  (select count(*) from traces where job_id = j.id and status in ('queued', 'running')) as open,
  (select string_agg(distinct server, ', ' order by server) from traces where job_id = j.id) as servers,
  (select count(*) from traces where job_id = j.id and fork_of is not null) as forks,
  exists (select from traces where job_id = j.id and harbor_task_id is not null) as harbor
from jobs j where j.id = :job
