-- The trace as a whole: what its trajectory says about it.
select t.id, t.number, t.params, t.seed, t.status, t.ended_because, t.failure_kind, t.failure, t.returned, t.ticks,
  t.blocks, t.bytes, t.candidates, t.sampled_tokens, t.fork_of, t.fork_at, t.retry_of, j.id as job_id,
  j.name as job, j.agent, j.model, j.version, f.name as bootstrap,
  (select sum(p.tokens) from prompts p join steps s on s.id = p.step_id
    where p.trace_id = t.id and s.kind = 'sample')::bigint as prompt_tokens,
  (select sum(p.cached) from prompts p join steps s on s.id = p.step_id
    where p.trace_id = t.id and s.kind = 'sample')::bigint as cached_tokens,
  (select sum(k.reward) from ticks k where k.trace_id = t.id and k.number > 0) as reward,
  (select count(k.reward) from ticks k where k.trace_id = t.id and k.number > 0 and k.protected) as protected_ticks,
  (select coalesce(sum(k.not_evaluated), 0)::bigint from ticks k where k.trace_id = t.id) as not_evaluated
from traces t join jobs j on j.id = t.job_id join bootstraps f on f.id = t.bootstrap_id where t.id = :trace
