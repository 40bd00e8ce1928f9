-- Writes a running trace, the next one of a job whose row is locked. Returns the settings of its first tick too.
insert into traces (job_id, number, bootstrap_id, params, seed, called_by, status, started_at)
select j.id, (select coalesce(max(number), 0) + 1 from traces where job_id = j.id), :bootstrap, '{}', :seed, :step,
  'running', clock_timestamp()
from jobs j where j.id = :job
returning id, (select revision from jobs where id = :job) as revision,
  (select paused_seconds from jobs where id = :job) as paused_seconds
