-- Those of these traces that are over and have no open environment on the host: some, as each takes a while to remove.
select t.id from traces t
where t.id = any(:traces) and t.status in ('ended', 'failed', 'cancelled')
  and not exists (select from environments e where e.trace_id = t.id and e.closed_at is null and e.host = :host)
limit 20
