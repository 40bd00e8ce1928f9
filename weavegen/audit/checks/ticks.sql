-- proves: tick numbers run from 0 without gaps, and a subagent's ticks end before their caller's tick and
--   within its deadline
-- subject: ticks
select x.trace_id, 'tick ' || x.number, case
    when x.step <> 1 then format('%s ticks before it are missing', x.step - 1)
    when x.caller is not null and c.id is null then format('its caller, tick %s, is missing', x.caller)
    when x.caller >= x.number then format('its caller, tick %s, has a higher number', x.caller)
    when x.finished_at is null and c.finished_at is not null
      then format('it is open, but its caller, tick %s, is finished', x.caller)
    else format('its deadline is after that of its caller, tick %s', x.caller)
  end
from (
  select k.*, k.number - lag(k.number, 1, -1::bigint) over w as step
  from ticks k join traces t on t.id = k.trace_id where {scope}
  window w as (partition by k.trace_id order by k.number)
) x left join ticks c on c.trace_id = x.trace_id and c.number = x.caller
where x.step <> 1 or x.caller is not null and (c.id is null or x.caller >= x.number
  or x.finished_at is null and c.finished_at is not null
  -- pauses are added to deadlines
  or x.deadline - x.paused_seconds > c.deadline - c.paused_seconds + 0.001)
order by 1, x.number
