-- Whether the trace t is a success: it returned and, at the last tick of main, every evaluation of its task was true.
-- Null: none was false, but one was not evaluated. What an evaluation returns counts as true only if it is True.
-- A Harbor task has rewards, which are numbers: its verification, also after a failure of the agent, says whether all are
-- at least 1.
case when t.harbor_task_id is not null and t.returned ? 'success' then
  case when jsonb_typeof(t.returned -> 'success') = 'boolean' then (t.returned -> 'success')::boolean end
when t.ended_because = 'returned' then (
  select case
    when not coalesce(
      bool_and(coalesce(e.error is null and e.value = 'true', false)) filter (where e.cause is null),
      count(e.cause) > 0) then false
    when count(e.cause) = 0 then true
  end
  from (
    select number, run from ticks where trace_id = t.id and caller is null order by number desc limit 1
  ) k
  join evaluations e on e.trace_id = t.id and e.tick = k.number and e.scope = 'task'
  join steps s on s.id = e.step_id and s.run = k.run  -- not of a run that was started over
) else false end
