-- Seconds for which nothing has done what a sweep does each second: send the steps that are due, and start queued traces
-- where none runs. null: everything is done, or no worker takes the queue `control`.
select extract(epoch from clock_timestamp() - min(due))::double precision
from (
  select case s.status when 'running' then s.lease_until else s.send_after end as due
  from steps s join traces t on t.id = s.trace_id join jobs j on j.id = t.job_id
  where s.status in ('ready', 'running') and t.status = 'running' and j.state <> 'paused'
    and (s.status = 'running' or s.queue not like 'execute.%' or {store/queue_is_served})
  union all
  select t.created_at from traces t join jobs j on j.id = t.job_id
  where t.status = 'queued' and j.state = 'active' and not exists (select from traces where status = 'running')
) waiting
where exists (select from (select 'control' as queue) s where {store/queue_is_served})
