-- The trace as a whole: what its trajectory says about it.
select t.id, t.status, t.fork_at, j.name as job, j.agent, j.model, j.version, f.name as bootstrap, k.reward,
  (select body from blocks b where b.trace_id = t.id and b.type = 'system' order by b.index limit 1) as system,
  json_strip_nulls(json_build_object('total_prompt_tokens', p.tokens, 'total_completion_tokens', t.sampled_tokens,
    'total_cached_tokens', p.cached, 'extra', json_build_object('candidates', t.candidates, 'reward', k.reward,
    'protected_ticks', k.protected, 'not_evaluated', k.not_evaluated))) as final_metrics,
  json_build_object('trace_id', t.id, 'job_id', j.id, 'job', j.name, 'number', t.number, 'bootstrap', f.name,
    'params', t.params, 'seed', t.seed, 'status', t.status, 'ended_because', t.ended_because,
    'failure_kind', t.failure_kind, 'failure', t.failure, 'returned', t.returned, 'ticks', t.ticks, 'blocks', t.blocks,
    'bytes', t.bytes, 'fork_of', t.fork_of, 'fork_at', t.fork_at, 'retry_of', t.retry_of) as extra
from traces t join jobs j on j.id = t.job_id join bootstraps f on f.id = t.bootstrap_id
cross join lateral (
  select sum(p.tokens)::bigint as tokens, sum(p.cached)::bigint as cached
  from prompts p join steps s on s.id = p.step_id where p.trace_id = t.id and s.kind = 'sample'
) p
cross join lateral (
  select sum(k.reward) filter (where k.number > 0) as reward,
    count(k.reward) filter (where k.number > 0 and k.protected) as protected,
    coalesce(sum(k.not_evaluated), 0)::bigint as not_evaluated
  from ticks k where k.trace_id = t.id
) k
where t.id = :trace
