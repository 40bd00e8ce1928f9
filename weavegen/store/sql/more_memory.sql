-- Until the transaction ends: so much memory for a sort.
select set_config('work_mem', '64MB', true)
