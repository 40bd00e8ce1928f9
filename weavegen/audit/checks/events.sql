-- proves: a trace's events contain its start, its end and every restart of a tick exactly once
-- subject: events
select t.id, 'its events', format('the trace is %s; its events have %s starts, %s ends, %s failures, %s cancellations, '
    || 'and %s of %s restarts', t.status, e.started, e.ended, e.failed, e.cancelled, e.restarted, k.runs)
from traces t left join lateral (
  select count(*) filter (where e.kind = 'started') as started,
    count(*) filter (where e.kind = 'ended') as ended, count(*) filter (where e.kind = 'failed') as failed,
    count(*) filter (where e.kind = 'cancelled') as cancelled,
    count(*) filter (where e.kind = 'tick restarted') as restarted
  from events e where e.trace_id = t.id
) e on true left join lateral (
  select count(*) as n, coalesce(sum(k.run), 0) as runs from ticks k where k.trace_id = t.id
) k on true
where {scope} and ((e.started, e.ended, e.failed, e.restarted) <> ((k.n > 0)::int,
    (t.status = 'ended')::int, (t.status = 'failed')::int, k.runs)
  or e.cancelled > (t.status = 'cancelled')::int)  -- version 0.1 did not record cancellations
order by 1
