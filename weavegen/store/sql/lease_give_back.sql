-- Frees rows of {table} that a worker holds, to be sent at once. The arrays have an element for each row.
update {table} t set status = '{free}', lease_until = null, send_after = clock_timestamp()
from unnest(cast(:ids as bigint[]), cast(:claims as bigint[])) h (id, claims)
where t.id = h.id and t.claims = h.claims and t.status = 'running'
