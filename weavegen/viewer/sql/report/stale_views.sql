-- Of these views, those that were refreshed before the job's last change.
select name from views where name = any(cast(:names as text[])) and as_of <= (
  select max(case status when 'running' then now() else coalesce(finished_at, created_at) end)
  from traces where job_id = :job
) order by position
