-- Claims a ready step of a running trace, unless its job is paused.
update steps s set status = 'running', claims = s.claims + 1, worker = :worker, claimed_at = clock_timestamp(),
  lease_until = clock_timestamp() + make_interval(secs => :lease)
from traces t, jobs j, ticks k
where s.id = :step and s.status = 'ready' and t.id = s.trace_id and t.status = 'running'
  and j.id = t.job_id and j.state <> 'paused' and k.trace_id = s.trace_id and k.number = s.tick
returning s.id, s.trace_id, s.tick, s.run, s.ordinal, s.claims, s.kind, s.request, t.server, k.revision, t.restarts
