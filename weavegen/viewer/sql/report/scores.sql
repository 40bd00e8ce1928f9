-- By bin: score is its lower end.
select floor(greatest(-cast(:max_score as double precision), least(score, :max_score - :bin_width)) / :bin_width) * :bin_width as score,
  count(block_id) as chosen, count(*) - count(block_id) as lost
from candidate_values where job_id = :job and score is not null group by 1 order by 1
