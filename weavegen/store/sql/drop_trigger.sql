-- Drops the trigger of blocks with its function.
drop function queue_blocks cascade
