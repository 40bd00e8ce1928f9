-- Sets the counts of a fork to those at the cut, and its server and the lag of its clock.
update traces t set fork_at = :at, blocks = :at, bytes = b.size, shared_bytes = b.size,
  ticks = (select count(*) from ticks where trace_id = :child and number > 0 and finished_at is not null),
  server = (select server from traces where id = :parent),
  lag = round((extract(epoch from clock_timestamp()) - cast(:clock as double precision))::numeric, 3)
from (select coalesce(sum(octet_length(rendered)), 0) as size from blocks where trace_id = :child) b
where t.id = :child
