-- The ticks of a trace, with the settings that they began with and whether their evaluations ran,
-- or the verifier of a Harbor task.
select k.number, k.subagent, k.reward, k.protected, k.not_evaluated, coalesce(o.settings, j.settings) as settings,
  k.finished_at is not null and exists (
  select from steps s where s.trace_id = k.trace_id and s.tick = k.number and s.run = k.run and s.kind = 'execute'
    and s.status = 'done' and s.request ->> 'op' = 'evaluate') as evaluated,
  exists (
  select from steps s where s.trace_id = k.trace_id and s.tick = k.number and s.run = k.run and s.kind = 'execute'
    and s.status = 'done' and s.request ->> 'op' = 'verify') as verified
from ticks k join traces t on t.id = k.trace_id join jobs j on j.id = t.job_id
left join job_settings o on o.job_id = j.id and o.revision = k.revision
where k.trace_id = :id order by k.number
