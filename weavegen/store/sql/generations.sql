-- The generations of a search. Programs that failed have no score.
select generation, count(*) as programs, count(*) - count(score) as without_score, max(score) as best,
  avg(score) as mean, percentile_cont(0.5) within group (order by score) as median,
  max(max(score)) over (order by generation) as best_so_far
from programs where trace_id = :trace group by generation order by generation
