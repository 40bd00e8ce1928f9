-- proves: a running trace has an open tick; where subagents work, the open ticks form a chain in which each
--   waits for the next
-- subject: running traces
select t.id, coalesce('tick ' || k.number, 'its row'), case
    when k.number is null then 'the trace is running, but no tick is open'
    when k.caller is distinct from k.outer_tick and not k.verifies
      then format('it is open at the same time as tick %s, which did not call it', k.outer_tick)
    when k.inner_tick is null then 'it waits for a subagent that has no tick'
    else format('tick %s belongs to a subagent, but this tick waits for %s subagents', k.inner_tick, w.n)
  end
from traces t left join (
  select k.trace_id, k.number, k.run, k.caller, lag(k.number) over w as outer_tick,
    lead(k.number) over w as inner_tick,
    -- A Harbor task's tests run after a subagent has spent the trace's budget, while its callers still wait.
    coalesce(k.state ? 'verification', false) as verifies,
    coalesce(lead(k.state) over w ? 'verification', false) as is_verified
  from ticks k join traces t on t.id = k.trace_id
  where {scope} and t.status = 'running' and k.finished_at is null
  window w as (partition by k.trace_id order by k.number)
) k on k.trace_id = t.id
left join lateral (
  select count(*) as n from steps s where s.trace_id = t.id and s.tick = k.number and s.run = k.run
    and s.kind = 'work' and s.status = 'running'
) w on true
where {scope} and t.status = 'running' and (k.number is null
  or k.caller is distinct from k.outer_tick and not k.verifies
  or w.n <> case when k.inner_tick is null then 0 else 1 end and not k.is_verified)
order by 1, k.number
