-- Finished ticks after a cursor. They wait for some seconds, because a tick that ended earlier may be committed later.
-- A column whose name has a dot is an attribute of the span, in the other files of this folder too. A tick that a fork
-- copied has no steps: `began` is null.
with next as materialized (
  select k.id, k.trace_id, k.number, k.run, k.finished_at, k.subagent, k.reward, k.protected, t.job_id, t.bootstrap_id
  from ticks k join traces t on t.id = k.trace_id
  where (k.finished_at, k.id) > (:at, :id)
    and k.finished_at < clock_timestamp() - make_interval(secs => :settled)
    and (cast(:job as bigint) is null or t.job_id = :job)
  order by k.finished_at, k.id limit :limit
)
select k.id, k.trace_id, k.number, k.run, k.finished_at, s.began, greatest(k.finished_at, s.ended) as ended,
  'invoke_agent ' || j.agent as name, 'invoke_agent' as "gen_ai.operation.name",
  k.trace_id::text as "gen_ai.conversation.id", j.agent as "gen_ai.agent.name",
  j.model as "gen_ai.request.model",
  s.input_tokens as "gen_ai.usage.input_tokens", s.output_tokens as "gen_ai.usage.output_tokens",
  coalesce(j.model = :simulated, false) as "weavegen.simulated", k.job_id as "weavegen.job",
  j.name as "weavegen.job.name", k.trace_id as "weavegen.trace", k.number as "weavegen.tick",
  k.subagent as "weavegen.subagent", f.name as "weavegen.bootstrap", k.reward as "weavegen.reward",
  k.protected as "weavegen.protected"
from next k join jobs j on j.id = k.job_id join bootstraps f on f.id = k.bootstrap_id
cross join lateral (
  select min(s.ready_at) as began, max(s.finished_at) as ended, sum(p.tokens)::bigint as input_tokens,
    sum((select sum(c.tokens) from candidates c where c.step_id = s.id))::bigint as output_tokens
  from steps s left join prompts p on p.step_id = s.id
  where s.trace_id = k.trace_id and s.tick = k.number and s.run = k.run
    and s.copy_of is null and s.finished_at is not null
) s
order by k.finished_at, k.id
