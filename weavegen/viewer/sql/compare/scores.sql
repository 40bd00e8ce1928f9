-- Scores of the candidates of two jobs as shares of those read, in bins of half a unit of log odds; the outermost bins have the
-- rest. `score` is the middle of the bin. Of each job these are all candidates of some traces, in the order of a hash of
-- their numbers, until they have :most candidates. The traces are an array, because PostgreSQL moves a condition on it
-- into the view.
with ordered as materialized (
  select id, sum(candidates) over (partition by job_id order by md5(id::text)) - candidates as before
  from traces where job_id in (:a, :b) and candidates > 0
)
select job_id, floor(greatest(-12, least(11.9, score)) * 2) / 2 + 0.25 as score,
  count(*)::float / sum(count(*)) over (partition by job_id) as share
from candidate_values where trace_id = any(array(select id from ordered where before < :most)) and score is not null
group by job_id, 2 order by job_id = :b, 2
