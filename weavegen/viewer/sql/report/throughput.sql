-- Blocks recorded and tokens sampled, by bin of the time axis.
with began as (select min(started_at) as at from traces where job_id = :job)
select part * :part as seconds, sum(blocks)::bigint as blocks, sum(tokens)::bigint as tokens
from (
  select floor(extract(epoch from b.created_at - began.at) / :part)::bigint as part, count(*) as blocks,
    0 as tokens
  from began, blocks b join traces t on t.id = b.trace_id
  where t.job_id = :job and b.index >= coalesce(t.fork_at, 0) and b.created_at >= began.at group by 1
  union all
  select floor(extract(epoch from s.finished_at - began.at) / :part)::bigint, 0, sum(c.tokens)
  from began, candidates c join traces t on t.id = c.trace_id join steps s on s.id = c.step_id
  where t.job_id = :job and s.copy_of is null and s.finished_at >= began.at group by 1
) parts
group by part order by part
