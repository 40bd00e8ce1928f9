-- The ticks whose actions wait for the subagent of a tick, the innermost first.
with recursive waiting as (
  select caller, 1 as depth from ticks where trace_id = :trace and number = :tick
  union all
  select k.caller, depth + 1 from waiting w join ticks k on k.trace_id = :trace and k.number = w.caller
)
select caller from waiting where caller is not null order by depth
