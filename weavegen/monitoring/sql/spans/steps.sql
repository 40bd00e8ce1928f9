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
