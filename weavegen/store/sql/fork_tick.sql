-- The tick of block `at`; if `at` lies after the last block, the tick that was running.
select k.*, t.seed, t.lag,
  (select type from blocks where trace_id = k.trace_id and index = k.first_block - 1) as last_type
from ticks k join traces t on t.id = k.trace_id
where k.trace_id = :trace and k.number = coalesce(
  (select tick from blocks where trace_id = :trace and index = :at),
  (select tick from steps where trace_id = :trace and t.status <> 'ended' order by id desc limit 1))
