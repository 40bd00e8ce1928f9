-- Lets batches wait again whose lease expired, or that no worker claimed after they were sent.
-- Times beyond the longest delay count as overdue too: the database's clock was set back.
update campaign_batches set status = 'waiting', lease_until = null, send_after = clock_timestamp()
where status in ('sent', 'running')
  and case status when 'running' then lease_until else send_after end
    not between clock_timestamp() and clock_timestamp() + make_interval(secs => :never)
