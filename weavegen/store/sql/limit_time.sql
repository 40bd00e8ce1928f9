-- Limits the time of each statement until the transaction ends. Not by set_config, which the reader's role may not call.
set local statement_timeout = {milliseconds}
