-- Of a search for a program: the best and the worst.
select trace_id, number, generation, score, error, left(source, :excerpt) as source from (
  (select p.* from programs p join traces t on t.id = p.trace_id where t.job_id = :job and p.score is not null
    order by p.score desc, p.id limit 1)
  union all
  (select p.* from programs p join traces t on t.id = p.trace_id where t.job_id = :job
    order by p.score nulls first, p.id desc limit 1)
) shown
order by score desc nulls last
