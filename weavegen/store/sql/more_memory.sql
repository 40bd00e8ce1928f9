-- Sorts in more memory until the transaction ends. Not by set_config, which the reader's role may not call.
set local work_mem = '64MB'
