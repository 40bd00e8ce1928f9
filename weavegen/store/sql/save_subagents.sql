-- Stores the subagents of a trace, given as a JSON list whose members leave out defaults. Rows that have not changed
-- are not written again.
insert into subagents (trace_id, name, parent, description, schema, time_budget, completed, returned)
select :trace, name, parent, description, schema, time_budget, coalesce(completed, false), returned
from jsonb_to_recordset(cast(:subagents as jsonb)) as s (
  name text, parent text, description text, schema jsonb, time_budget double precision, completed boolean,
  returned jsonb
)
on conflict (trace_id, name) do update
set description = excluded.description, schema = excluded.schema, time_budget = excluded.time_budget,
  completed = excluded.completed, returned = excluded.returned
where (subagents.description, subagents.schema, subagents.time_budget, subagents.completed, subagents.returned)
  is distinct from
  (excluded.description, excluded.schema, excluded.time_budget, excluded.completed, excluded.returned)
