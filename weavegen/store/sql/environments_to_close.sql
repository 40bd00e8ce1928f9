-- The open environments of traces that are over. trace null: of any trace, on hosts whose worker has reported within
-- `silent` seconds: what is sent to a host that is gone would only pile up in the broker.
select e.trace_id, e.host from environments e join traces t on t.id = e.trace_id
where e.closed_at is null and t.status in ('ended', 'failed', 'cancelled')
  and (
    e.trace_id = :trace
    or cast(:trace as bigint) is null and exists (
      select from workers
      where 'execute.' || e.host = any(queues) and seen_at > clock_timestamp() - make_interval(secs => :silent)
    )
  )
