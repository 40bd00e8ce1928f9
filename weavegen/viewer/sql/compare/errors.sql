-- How often errors occurred in two jobs.
select stage, type, error, coalesce(sum(errors) filter (where job_id = :a), 0)::bigint as a,
  coalesce(sum(errors) filter (where job_id = :b), 0)::bigint as b
from errors_by_stage where job_id in (:a, :b)
group by stage, type, error order by sum(errors) desc, stage, type, error limit 20
