-- What a fork takes over from the trace. The columns after the first four become those of the fork's job.
select t.job_id, t.bootstrap_id, t.harbor_task_id, t.params, j.agent, j.model, j.asked_model, j.evaluator, j.student, j.template_id,
  j.packages_id, j.starting_files_id, j.settings, j.mcp_servers, j.revision
from traces t join jobs j on j.id = t.job_id where t.id = :trace
