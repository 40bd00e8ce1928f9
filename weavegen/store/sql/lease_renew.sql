-- Renews the leases of rows of {table} that workers hold. The arrays have an element for each row.
update {table} t set lease_until = clock_timestamp() + make_interval(secs => :seconds)
from unnest(cast(:ids as bigint[]), cast(:claims as bigint[])) h (id, claims)
where t.id = h.id and t.claims = h.claims and t.status = 'running'
