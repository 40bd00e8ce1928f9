-- Lets the sweeper send the ready steps of jobs at once.
update steps set send_after = clock_timestamp()
where status = 'ready' and trace_id in (select id from traces where job_id = any(:jobs) and status = 'running')
