-- Starts queued traces: each free place goes to the job with the fewest running traces.
-- It looks at the first few traces of each job only, and jumps from job to job in the index, so the cost does not grow
-- with the queue.
with recursive waiting as (
  select min(job_id) as id from traces where status = 'queued'
  union all
  select (select min(job_id) from traces where status = 'queued' and job_id > w.id) from waiting w where w.id is not null
),
running as (
  select t.job_id, count(*) n from traces t join jobs j on j.id = t.job_id
  where t.status = 'running' and j.state <> 'paused' group by t.job_id
),
free as (select least(:at_most, :max_active - coalesce((select sum(n) from running), 0)) n),
first as (
  select t.id, row_number() over (partition by j.id order by t.id) + coalesce(r.n, 0) as turn
  from waiting w join jobs j on j.id = w.id and j.state = 'active'
  left join running r on r.job_id = j.id
  cross join lateral (
    select id from traces where job_id = j.id and status = 'queued' order by id limit :at_most
  ) t
)
update traces t set status = 'running', started_at = clock_timestamp() from jobs j
where j.id = t.job_id and t.status = 'queued'  -- again: another transaction may just have cancelled it
  and t.id in (select id from first order by turn, id limit greatest(0, (select n from free)))
returning t.id, j.revision, j.paused_seconds
