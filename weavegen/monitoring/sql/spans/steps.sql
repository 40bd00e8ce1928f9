-- Steps of some ticks. The label begins with trace and tick, which are attributes of the tick; `what` is the first word of
-- the rest: a block type, an operation, an agent. What an agent is asked to do is left out, because the model wrote it.
-- Tokens: what the step sampled, and what the model read for it.
select s.id, s.trace_id, s.tick, s.kind, s.status, s.failure_kind, s.failure, s.ready_at, s.claimed_at, s.finished_at,
  s.model_seconds, concat_ws(' ', case when s.kind = 'execute' then 'execute_tool' else s.kind end, w.what) as name,
  o.operation as "gen_ai.operation.name", p.model as "gen_ai.request.model",
  case when o.operation = 'execute_tool' then w.what end as "gen_ai.tool.name",
  case when o.operation = 'text_completion' then p.tokens end as "gen_ai.usage.input_tokens",
  case when o.operation = 'text_completion' then (
    select sum(c.tokens)::bigint from candidates c where c.step_id = s.id
  ) end as "gen_ai.usage.output_tokens",
  case when s.status = 'failed' then s.failure_kind end as "error.type",
  s.id as "weavegen.step", s.kind as "weavegen.kind", l.label as "weavegen.label", s.status as "weavegen.status",
  s.queue as "weavegen.queue", s.worker as "weavegen.worker", s.claims as "weavegen.claims",
  s.model_seconds as "weavegen.model_seconds", s.environment_seconds as "weavegen.environment_seconds"
from steps s join unnest(cast(:trace_ids as bigint[]), cast(:numbers as bigint[]), cast(:runs as bigint[]))
  as k (trace_id, tick, run) on k.trace_id = s.trace_id and k.tick = s.tick and k.run = s.run
left join prompts p on p.step_id = s.id
cross join lateral (select case when s.kind = 'delegate' then split_part(s.label, ':', 1) else s.label end as label) l
cross join lateral (select (regexp_split_to_array(trim(l.label), ' +'))[5] as what) w
cross join lateral (
  select case when s.kind in ('sample', 'score') then 'text_completion' when s.kind = 'execute' then 'execute_tool' end
    as operation
) o
where s.copy_of is null and s.finished_at is not null
order by s.trace_id, s.tick, s.ordinal
