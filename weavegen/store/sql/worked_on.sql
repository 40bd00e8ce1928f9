-- Whether a worker holds a step of a job right now.
select exists (
  select from steps s join traces t on t.id = s.trace_id
  where t.job_id = :job and s.status = 'running' and s.lease_until > clock_timestamp()
)
