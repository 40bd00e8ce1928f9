-- gauge steps_ready: Steps that no worker has taken.
-- gauge steps_retrying: Ready steps that failed before and are tried again.
-- gauge oldest_ready_step_age_seconds: How long the longest-waiting ready step has waited; 0: there is none.
-- A step waits from when it became ready or its last attempt began: for at most 45 seconds until another after an error.
with ready as (
  select s.queue, count(*) as steps, count(s.failure) as retrying, min(greatest(s.ready_at, s.claimed_at)) as oldest
  from steps s join traces t on t.id = s.trace_id join jobs j on j.id = t.job_id
  where s.status = 'ready' and j.state <> 'paused' group by s.queue
)
select queue, coalesce(steps, 0) as steps_ready, coalesce(retrying, 0) as steps_retrying,
  coalesce(extract(epoch from clock_timestamp() - oldest), 0)::double precision as oldest_ready_step_age_seconds
from (select unnest(array['control', 'sample', 'score', 'lint', 'execute'])
      union select queue from steps where status in ('ready', 'running')
      union select 'execute.' || host from environments where closed_at is null) queues (queue)
left join ready using (queue)
