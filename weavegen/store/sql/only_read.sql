-- Forbids writing until the transaction ends.
select set_config('transaction_read_only', 'on', true)
