-- Forbids writing until the transaction ends. Not by set_config, which the reader's role may not call.
set transaction read only
