-- By kind of step and its purpose.
select kind, what, sum(steps)::bigint as steps, sum(retried)::bigint as retried, sum(failed)::bigint as failed,
  sum(model_seconds) as model_seconds, sum(environment_seconds) as environment_seconds,
  sum(own_seconds) as own_seconds, sum(waiting_seconds) as waiting_seconds
from step_times where job_id = :job and kind not in ('work', 'delegate', 'await')
group by kind, what order by model_seconds desc, environment_seconds desc, kind, what
