-- What never changes about a trace under one revision of its job's settings. seed: that of the trace that the line of
-- forks began with.
with recursive line as (
  select id, seed, fork_of from traces where id = :trace
  union all
  select t.id, t.seed, t.fork_of from traces t join line l on t.id = l.fork_of
)
select (select seed from line where fork_of is null) as seed, t.params, t.job_id, j.agent, j.model, j.evaluator, m.texts as template,
  p.sha256 as packages, f.sha256 as files, h.sha256 as harbor, h.task as harbor_task,
  coalesce(s.settings, j.settings) as settings, j.mcp_servers, b.source as bootstrap
from traces t
join jobs j on j.id = t.job_id
join bootstraps b on b.id = t.bootstrap_id
left join templates m on m.id = j.template_id
left join packages p on p.id = j.packages_id
left join starting_files f on f.id = j.starting_files_id
left join harbor_tasks h on h.id = t.harbor_task_id
left join job_settings s on s.job_id = t.job_id and s.revision = :revision
where t.id = :trace
