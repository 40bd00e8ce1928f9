-- Limits the time of each statement until the transaction ends.
select set_config('statement_timeout', cast(cast(:milliseconds as bigint) as text), true)
