-- The newest jobs that have traces, newest first. job: only this one; null: any. before: only those with lower numbers.
-- only_open: only those that have queued or running traces.
select id from jobs j
where id between coalesce(cast(:job as bigint), 0)
  and coalesce(cast(:job as bigint), cast(:before as bigint) - 1, 9223372036854775807)
  and exists (select from traces t where t.job_id = j.id)
  and (
    not :only_open
    or exists (select from traces t where t.job_id = j.id and t.status = 'queued')
    or id in (select t.job_id from traces t where t.status = 'running')
  )
order by id desc limit :limit
