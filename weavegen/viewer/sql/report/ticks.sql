-- Means over the traces, by number of the tick.
select tick, sum(traces)::bigint as traces, sum(traces * reward) / sum(traces) as reward,
  sum(traces * errors) / sum(traces) as errors
from learning_curves where job_id = :job group by tick order by tick
