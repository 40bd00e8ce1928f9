-- Whether at least :failed scoring steps of a trace's job have failed, and none has succeeded.
select not exists (
  select from traces o join traces t on t.job_id = o.job_id join steps s on s.trace_id = t.id
  where o.id = :trace and s.kind = 'score' and s.status = 'done'
) and (
  select count(*) from traces o join traces t on t.job_id = o.job_id join steps s on s.trace_id = t.id
  where o.id = :trace and s.kind = 'score' and s.status = 'failed'
) >= :failed
