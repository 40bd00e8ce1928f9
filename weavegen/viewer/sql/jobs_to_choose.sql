-- The newest jobs that have traces, at most :limit, and the job :job, for a form in which a job is chosen.
select id, name, model from jobs
where id = cast(:job as bigint) or id in (
  select id from jobs j where exists (select from traces t where t.job_id = j.id) order by id desc limit :limit
)
order by id desc
