-- Writes a job.
insert into jobs (
  name, agent, model, asked_model, evaluator, student, template_id, packages_id, starting_files_id, seed, settings,
  mcp_servers, version, enqueued_by, paused_seconds,
  revision
)
values (
  :name, :agent, :model, :asked_model, :evaluator, :student, :template_id, :packages_id, :starting_files_id, :seed,
  cast(:settings as jsonb), cast(:mcp_servers as jsonb), :version, :enqueued_by, :paused_seconds,
  :revision
)
returning id
