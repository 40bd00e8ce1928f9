select type, question, sum(labels)::bigint as labels, sum(labels * predicted) / sum(labels) as predicted,
  sum(labels * observed) / sum(labels) as observed, sum(labels * abs(predicted - observed)) / sum(labels) as error,
  sum(labels * brier) / sum(labels) as brier
from evaluator_calibration where job_id = :job group by type, question order by labels desc
