-- Finished ticks after a cursor. They wait for some seconds, because a tick that ended earlier may be committed later.
-- A column whose name has a dot is an attribute of the span, in the other files of this folder too.
select k.id, k.trace_id, k.number, k.run, k.finished_at, j.agent, j.model, k.trace_id::text as "gen_ai.conversation.id",
  j.agent as "gen_ai.agent.name", t.job_id as "weavegen.job", j.name as "weavegen.job.name",
  k.trace_id as "weavegen.trace", k.number as "weavegen.tick", k.subagent as "weavegen.subagent",
  f.name as "weavegen.bootstrap", k.reward as "weavegen.reward", k.protected as "weavegen.protected"
from ticks k join traces t on t.id = k.trace_id join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
where (k.finished_at, k.id) > (:at, :id)
  and k.finished_at < clock_timestamp() - make_interval(secs => :settled)
  and (cast(:job as bigint) is null or t.job_id = :job)
order by k.finished_at, k.id limit :limit
