-- Jobs that a new state of all jobs concerns: active: those in another state; else those with open traces.
select id from jobs j
where case when :state = 'active' then state <> 'active'
  else exists (select from traces where job_id = j.id and status in ('queued', 'running')) end
