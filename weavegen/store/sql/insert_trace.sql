-- Writes a queued trace.
insert into traces (job_id, number, bootstrap_id, harbor_task_id, params, seed, retry_of, fork_of, fork_at)
values (
  :job_id, :number, :bootstrap_id, :harbor_task_id, cast(:params as jsonb), :seed, :retry_of, :fork_of, :fork_at
)
