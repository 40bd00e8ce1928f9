-- Waits for an advisory lock, and holds it until the transaction ends.
select pg_advisory_xact_lock(:key)
