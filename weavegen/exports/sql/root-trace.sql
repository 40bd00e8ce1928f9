-- The oldest trace that this one retries or forks, directly or not.
with recursive up as (
  select id, retry_of, fork_of, job_id, number from traces where id = :trace
  union
  select t.id, t.retry_of, t.fork_of, t.job_id, t.number from traces t join up on t.id in (up.retry_of, up.fork_of)
)
select id, job_id, number from up order by id limit 1
