-- Blocks by score. sign 1: the highest first; -1: the lowest first.
select b.trace_id, b.index, b.tick, b.type, b.score, b.reward, b.ran, b.exception, b.question, b.probability,
  b.answer, left(b.body, :excerpt) as body, length(b.body) > :excerpt as cut
from blocks b join traces t on t.id = b.trace_id
where t.job_id = :job and b.score is not null and b.index >= coalesce(t.fork_at, 0)
  and (b.type = 'action' or not exists (
    select from block_stats where job_id = :job and type = 'action' and scored > 0
  ))
order by :sign * b.score desc, b.id limit :examples
