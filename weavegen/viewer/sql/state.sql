-- How far a trace is; its key changes with it.
select blocks, restarts, status, ticks, concat_ws(':', restarts, blocks, ticks, status) as key,
  status in ('ended', 'failed', 'cancelled') as over
from traces where id = :trace
