select params::text as params, count(*) as traces from traces where job_id = :job
group by 1 order by traces desc, params limit 10
