select question, bin, sum(labels)::bigint as labels, sum(predicted * labels) / sum(labels) as predicted,
  sum(observed * labels) / sum(labels) as observed, sum(brier * labels) / sum(labels) as brier
from evaluator_calibration where cast(:job as bigint) is null or job_id = :job
group by question, bin order by question, bin
