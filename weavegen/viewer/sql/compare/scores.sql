-- Scores of the candidates of two jobs as shares of all, in bins of half a unit of log odds; the outermost bins have the
-- rest. `score` is the middle of the bin.
select job_id, floor(greatest(-12, least(11.9, score)) * 2) / 2 + 0.25 as score,
  count(*)::float / sum(count(*)) over (partition by job_id) as share
from candidate_values where job_id in (:a, :b) and score is not null
group by job_id, 2 order by job_id, 2
