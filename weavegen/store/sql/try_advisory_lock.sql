-- Takes an advisory lock until the transaction ends, unless another transaction has it.
select pg_try_advisory_xact_lock(:key)
