-- The revisions of jobs' settings, in order.
select id as job_id, 0 as revision, created_at, settings from jobs where id = any(:jobs)
union all
select job_id, revision, created_at, settings from job_settings where job_id = any(:jobs)
order by job_id, revision
