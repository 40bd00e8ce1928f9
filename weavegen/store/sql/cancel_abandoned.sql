-- Cancels delegated traces that nobody waits for any more.
update traces set status = 'cancelled', finished_at = clock_timestamp()
where id in (
    select t.id from traces t join steps s on s.id = t.called_by
    where t.status in ('queued', 'running') and s.status = 'void'
  )
  and status in ('queued', 'running')
returning id
