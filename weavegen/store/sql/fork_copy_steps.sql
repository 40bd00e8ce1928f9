-- Executed steps, calls of subagents, and the whole journal of open ticks. A call that was running at the cut is
-- running again. Ids are in the order in which the steps ran: rebuilding an environment relies on this.
with waiting as (
  select distinct on (s.tick) s.id from steps s
  where s.trace_id = :parent and s.id < :before and s.kind = 'work' and s.tick = any(:callers)
  order by s.tick, s.id desc
)
insert into steps (trace_id, tick, run, ordinal, kind, label, status, request, result, failure_kind, failure, queue,
  claims, ready_at, send_after, claimed_at, finished_at, copy_of)
select cast(:child as bigint), s.tick, s.run, s.ordinal, s.kind,
  regexp_replace(s.label, '^trace \d+', 'trace ' || cast(:child as bigint)),
  case when w.id is null then s.status else 'running' end, s.request,
  case when w.id is null then s.result end, s.failure_kind, s.failure,
  case when s.queue like 'execute.%' then 'execute' else s.queue end, s.claims, s.ready_at, s.send_after,
  s.claimed_at, case when w.id is null then s.finished_at end, coalesce(s.copy_of, s.id)
from steps s left join waiting w on w.id = s.id
where s.trace_id = :parent and s.id < :before and (s.kind in ('execute', 'work')
  or (s.tick, s.run) in (select number, run from ticks where trace_id = :parent and number = any(:open)))
order by s.id
