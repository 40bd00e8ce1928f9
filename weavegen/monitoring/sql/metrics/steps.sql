-- counter steps: Steps of the journal. As of the last refresh.
-- counter step_retries: Steps that were taken more than once. As of the last refresh.
-- counter step_failures: Steps that failed for good. As of the last refresh.
-- counter model_seconds: Seconds that steps waited for model servers. As of the last refresh.
-- counter environment_seconds: Seconds that steps waited for environments. As of the last refresh.
-- counter own_seconds: Seconds of steps without these two. As of the last refresh.
-- counter waiting_seconds: Seconds from when steps were ready to their last claim. As of the last refresh.
select kind, sum(steps)::bigint as steps, sum(retried)::bigint as step_retries, sum(failed)::bigint as step_failures,
  coalesce(sum(model_seconds), 0) as model_seconds, coalesce(sum(environment_seconds), 0) as environment_seconds,
  coalesce(sum(own_seconds), 0) as own_seconds, coalesce(sum(waiting_seconds), 0) as waiting_seconds
from step_times where kind not in ('work', 'delegate', 'await') group by kind order by kind
