-- Whether the blocks of the tick k are still there. A subagent's ticks lose theirs when their caller's tick is started over.
(k.finished_at is null or k.caller is null or exists (
  select from blocks own where own.trace_id = k.trace_id and own.index = k.first_block and own.tick = k.number))
