-- Frees the steps of workers that are gone, or of all (null); not steps of the kinds that no worker claims.
update steps set status = 'ready', lease_until = null, send_after = clock_timestamp()
where status = 'running' and kind <> all(:waits)
  and (worker = any(:workers) or cast(:workers as text[]) is null)
