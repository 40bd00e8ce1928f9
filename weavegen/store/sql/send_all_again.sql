update steps set send_after = clock_timestamp() where status = 'ready'
