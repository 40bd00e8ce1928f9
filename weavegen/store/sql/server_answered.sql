-- A server that has errors answered again. Usually there is nothing to change.
update server_health set errors_since_ok = 0, last_ok_at = clock_timestamp()
where url = :url and (errors_since_ok > 0 or last_ok_at < clock_timestamp() - interval '10 seconds')
