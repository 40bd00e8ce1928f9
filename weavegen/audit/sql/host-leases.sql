-- Steps that workers of this host hold.
select s.trace_id, s.id, s.worker, extract(epoch from s.claimed_at)::double precision as claimed,
  extract(epoch from s.lease_until - now())::double precision as seconds_left
from steps s join traces t on t.id = s.trace_id
where {scope} and s.status = 'running' and s.kind <> all(:waits) and starts_with(s.worker, :host)
