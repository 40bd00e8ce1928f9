-- In each line of retries: the newest of the chosen traces, unless a trace of that line is open or has ended.
with recursive tries as (
  select id, id as first, status from traces
  where retry_of is null and job_id in (select job_id from traces where id = any(:chosen))
  union all
  select t.id, tries.first, t.status from traces t join tries on t.retry_of = tries.id
)
select max(id) filter (where id = any(:chosen)) as id from tries group by first
having bool_or(id = any(:chosen)) and not bool_or(status in ('queued', 'running', 'ended'))
order by 1
