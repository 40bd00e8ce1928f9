-- The open environments of traces that are over. trace null: of any trace.
select e.trace_id, e.host from environments e join traces t on t.id = e.trace_id
where e.closed_at is null and t.status in ('ended', 'failed', 'cancelled')
  and (e.trace_id = :trace or cast(:trace as bigint) is null)
