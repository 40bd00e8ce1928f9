-- Those of these traces that are over, or were deleted, and have no open environment on the host: some, as each takes a
-- while to remove.
select id
from unnest(cast(:traces as bigint[])) found (id)
where not exists (select from traces t where t.id = found.id and t.status in ('queued', 'running'))
  and not exists (
    select from environments e where e.trace_id = found.id and e.closed_at is null and e.host = :host
  )
limit 20
