select p.score from programs p join traces t on t.id = p.trace_id
where t.job_id = :job and p.score is not null order by p.id
