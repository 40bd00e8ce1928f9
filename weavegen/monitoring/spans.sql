-- name: ticks
-- Finished ticks after a cursor. They wait for some seconds, because a tick that ended earlier may be committed later.
select k.id, k.trace_id, k.number, k.run, k.subagent, k.reward, k.finished_at, t.job_id, j.name as job, j.agent,
  j.model, f.name as bootstrap
from ticks k join traces t on t.id = k.trace_id join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
where (k.finished_at, k.id) > (:at, :id)
  and k.finished_at < clock_timestamp() - make_interval(secs => :settled)
  and (cast(:job as bigint) is null or t.job_id = :job)
order by k.finished_at, k.id limit :limit

-- name: steps
-- Steps of some ticks. Tokens: what the step sampled, and what the model read for it.
select s.id, s.trace_id, s.tick, s.run, s.ordinal, s.kind, s.label, s.status, s.queue, s.worker, s.claims,
  s.failure_kind, s.failure, s.ready_at, s.claimed_at, s.finished_at, s.model_seconds, s.environment_seconds,
  p.tokens as input_tokens,
  (select sum(c.tokens)::bigint from candidates c where c.step_id = s.id) as output_tokens
from steps s join unnest(cast(:traces as bigint[]), cast(:numbers as bigint[]), cast(:runs as bigint[]))
  as k (trace_id, tick, run) on k.trace_id = s.trace_id and k.tick = s.tick and k.run = s.run
left join prompts p on p.step_id = s.id
where s.copy_of is null and s.finished_at is not null
order by s.trace_id, s.tick, s.ordinal

-- name: evaluations
select step_id, title, scope, value, error from evaluations
where step_id = any(cast(:steps as bigint[])) order by step_id, position
