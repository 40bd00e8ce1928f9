-- The settings under which the ticks of these traces ran.
select distinct j.id as job_id, k.revision, j.agent, j.model, coalesce(n.settings, j.settings) as settings
from traces t join jobs j on j.id = t.job_id join ticks k on k.trace_id = t.id
left join job_settings n on n.job_id = j.id and n.revision = k.revision
where t.id = any(cast(:traces as bigint[]))
