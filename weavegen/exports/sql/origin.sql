-- The models, versions and bootstraps that these traces come from.
select array_agg(distinct j.model) filter (where j.model is not null) as models,
  bool_or(j.model is null) as unnamed,
  array_agg(distinct j.version order by j.version) as versions,
  array_agg(distinct f.name order by f.name) as bootstraps
from traces t join jobs j on j.id = t.job_id join bootstraps f on f.id = t.bootstrap_id
where t.id = any(cast(:traces as bigint[]))
