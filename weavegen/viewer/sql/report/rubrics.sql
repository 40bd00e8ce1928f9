select rubric, sum(asked)::bigint as asked from question_stats where job_id = :job
group by rubric order by asked desc
