-- The ticks before the cut. Those that are open there are open in the fork. paused: what the fork's job has been paused more
-- than the other job had been at the cut, for pauses count from there.
insert into ticks (trace_id, number, subagent, caller, deadline, run, revision, paused_seconds, inherited, state,
  first_block, repeats, clock, reward, protected, not_evaluated, finished_at)
select :child, k.number, k.subagent, k.caller, k.deadline, k.run,
  case when k.number = any(:open) then :revision else k.revision end, k.paused_seconds + :paused, k.inherited, k.state,
  k.first_block, k.repeats, k.clock,
  case when k.number = any(:open) then null else k.reward end,
  k.protected and not k.number = any(:open), case when k.number = any(:open) then 0 else k.not_evaluated end,
  case when k.number = any(:open) then null else k.finished_at end
from ticks k where k.trace_id = :parent and (k.number = :tick or k.caller is null and k.number < :tick or exists (
  select from steps s where s.trace_id = k.trace_id and s.tick = k.number and s.id < :before))
order by k.number
