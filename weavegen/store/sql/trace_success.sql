-- Whether the trace t is a success: it returned and, at its last tick, every evaluation of its task was true. Null: none was
-- false, but one was not evaluated.
case when t.ended_because = 'returned' then (
  select case
    when not coalesce(
      bool_and(e.error is null and e.value = 'true') filter (where e.cause is null), count(e.cause) > 0) then false
    when count(e.cause) = 0 then true
  end
  from evaluations e where e.trace_id = t.id and e.scope = 'task' and e.tick = t.ticks
) else false end
