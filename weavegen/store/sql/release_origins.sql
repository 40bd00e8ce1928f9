select array_agg(distinct coalesce(j.model, '')) as models, array_agg(distinct j.version) as versions,
  (select array_agg(distinct rubric) from scores where trace_id = any(cast(:traces as bigint[]))) as rubrics
from traces t join jobs j on j.id = t.job_id where t.id = any(cast(:traces as bigint[]))
