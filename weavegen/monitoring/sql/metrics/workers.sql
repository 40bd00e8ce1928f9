-- gauge worker_silent_seconds: Seconds since a worker's last report. Workers report every three seconds.
select node, min(extract(epoch from clock_timestamp() - seen_at))::double precision as worker_silent_seconds
from workers group by node
