-- Gives a row of {table} back after a transient error. undone: 1 where the attempt does not count as a claim.
update {table} set status = '{free}', lease_until = null, failure = :reason, claims = claims - :undone,
  send_after = clock_timestamp() + make_interval(secs => :delay)
where id = :id and claims = :claims and status = 'running'
