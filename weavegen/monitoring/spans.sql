-- name: ticks
-- Finished ticks after a cursor. They wait for some seconds, because a tick that ended earlier may be committed later.
-- A column whose name has a dot is an attribute of the span, here and below.
select k.id, k.trace_id, k.number, k.run, k.finished_at, j.agent, j.model, k.trace_id::text as "gen_ai.conversation.id",
  j.agent as "gen_ai.agent.name", t.job_id as "weavegen.job", j.name as "weavegen.job.name",
  k.trace_id as "weavegen.trace", k.number as "weavegen.tick", k.subagent as "weavegen.subagent",
  f.name as "weavegen.bootstrap", k.reward as "weavegen.reward"
from ticks k join traces t on t.id = k.trace_id join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
where (k.finished_at, k.id) > (:at, :id)
  and k.finished_at < clock_timestamp() - make_interval(secs => :settled)
  and (cast(:job as bigint) is null or t.job_id = :job)
order by k.finished_at, k.id limit :limit

-- name: steps
-- Steps of some ticks. Tokens: what the step sampled, and what the model read for it.
select s.id, s.trace_id, s.tick, s.run, s.ordinal, s.kind, s.label, s.status, s.failure_kind, s.failure, s.ready_at,
  s.claimed_at, s.finished_at, s.model_seconds, s.id as "weavegen.step", s.kind as "weavegen.kind",
  s.label as "weavegen.label", s.status as "weavegen.status", s.queue as "weavegen.queue",
  s.worker as "weavegen.worker", s.claims as "weavegen.claims", s.model_seconds as "weavegen.model_seconds",
  s.environment_seconds as "weavegen.environment_seconds", p.tokens as input_tokens,
  (select sum(c.tokens)::bigint from candidates c where c.step_id = s.id) as output_tokens
from steps s join unnest(cast(:traces as bigint[]), cast(:numbers as bigint[]), cast(:runs as bigint[]))
  as k (trace_id, tick, run) on k.trace_id = s.trace_id and k.tick = s.tick and k.run = s.run
left join prompts p on p.step_id = s.id
where s.copy_of is null and s.finished_at is not null
order by s.trace_id, s.tick, s.ordinal

-- name: evaluations
select step_id, value, error, title as "gen_ai.evaluation.name", scope as "weavegen.evaluation.scope" from evaluations
where step_id = any(cast(:steps as bigint[])) order by step_id, position
