-- Writes the job of the traces that a job delegates to an agent. No row: there is one already.
insert into jobs (name, agent, model, asked_model, evaluator, student, packages_id, starting_files_id, template_id,
  seed, settings, version, enqueued_by, called_by)
select name || ': ' || cast(:agent as text), cast(:agent as text), coalesce(cast(:model as text), model), cast(:model as text),
  evaluator, student, packages_id, starting_files_id,
  case when asked_model is not distinct from cast(:model as text) then template_id end,
  :seed, cast(:settings as jsonb), version, enqueued_by, id
from jobs where id = :caller
on conflict do nothing returning id
