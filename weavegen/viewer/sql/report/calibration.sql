-- By type and tenth of the probability.
select type, bin, sum(labels)::bigint as labels, sum(labels * predicted) / sum(labels) as predicted,
  sum(labels * observed) / sum(labels) as observed
from evaluator_calibration where job_id = :job group by type, bin order by type, bin
