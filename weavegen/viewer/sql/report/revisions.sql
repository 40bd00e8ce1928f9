-- Revisions of the settings: what differs from the defaults.
select 0 as revision, created_at, settings from jobs where id = :job
union all
select revision, created_at, settings from job_settings where job_id = :job
order by revision
