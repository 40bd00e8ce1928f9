-- The oldest trace that this one retries or forks, directly or not. callers: or that delegated to one of these.
with recursive up as (
  select id, retry_of, fork_of, called_by, job_id, number from traces where id = :trace
  union
  select t.id, t.retry_of, t.fork_of, t.called_by, t.job_id, t.number
  from up left join steps s on s.id = up.called_by and cast(:callers as boolean)
  join traces t on t.id in (up.retry_of, up.fork_of, s.trace_id)
)
select id, job_id, number from up order by id limit 1
