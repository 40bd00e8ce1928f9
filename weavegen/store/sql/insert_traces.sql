-- Writes queued traces, given as a JSON list of rows. Columns that a row leaves out are null.
insert into traces (job_id, number, bootstrap_id, harbor_task_id, params, seed, retry_of, fork_of, fork_at)
select job_id, number, bootstrap_id, harbor_task_id, params, seed, retry_of, fork_of, fork_at
from jsonb_to_recordset(cast(:traces as jsonb)) as t (
  job_id bigint, number bigint, bootstrap_id bigint, harbor_task_id bigint, params jsonb, seed bigint, retry_of bigint,
  fork_of bigint, fork_at bigint
)
