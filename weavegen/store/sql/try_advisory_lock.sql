-- Takes an advisory lock until the transaction ends, unless another transaction has it. The transaction of a host that
-- lost its power ends after five minutes: PostgreSQL would otherwise keep it, and the lock, for two hours.
select pg_try_advisory_xact_lock(:key) from set_config('idle_in_transaction_session_timeout', '5min', true)
