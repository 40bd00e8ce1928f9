-- New traces that are retries of these, with the next numbers of their jobs.
select job_id, bootstrap_id, harbor_task_id, params, seed, fork_of, fork_at, id as retry_of,
  (select max(number) from traces where job_id = t.job_id) + row_number() over (partition by job_id order by id)
    as number
from traces t where id = any(:ids) order by id
