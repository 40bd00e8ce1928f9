-- Makes steps ready to be sent again: those whose lease expired, and those that no worker claimed after they were sent.
-- Times beyond the longest delay count as overdue too: the database's clock was set back. A step for one host is not
-- sent again while its worker has not reported for `silent` seconds: its messages would fill the broker.
update steps set status = 'ready', lease_until = null,
  send_after = clock_timestamp() + make_interval(secs => :resend)
where id in (
  select s.id from steps s join traces t on t.id = s.trace_id join jobs j on j.id = t.job_id
  where s.status in ('ready', 'running') and j.state <> 'paused'
    and case s.status when 'running' then s.lease_until else s.send_after end
      not between clock_timestamp() and clock_timestamp() + make_interval(secs => :never)
    and (s.status = 'running' or s.queue not like 'execute.%' or {store/queue_is_served})
  limit :limit for update of s skip locked
)
returning id, kind, queue, label || case when claims > 0 then ' attempt ' || claims + 1 else '' end as label
