-- Copies the blocks before the cut. Open ticks have no reward yet.
with {store/fork_copied_steps}
insert into blocks (trace_id, index, tick, subagent, type, body, rendered, timestamp, time_remaining, block_size,
  bm25_query, title, tick_start, working_directory, compiles, question, answer, probability, ran, exception, tags,
  score, reward, preference, executed_by, toolset_id, created_at)
select :child, b.index, b.tick, b.subagent, b.type, b.body, b.rendered, b.timestamp, b.time_remaining,
  b.block_size, b.bm25_query, b.title, b.tick_start, b.working_directory, b.compiles, b.question, b.answer,
  b.probability, b.ran, b.exception, b.tags, b.score, case when b.tick = any(:open) then null else b.reward end,
  case when b.tick = any(:open) then null else b.preference end, c.new, b.toolset_id, b.created_at
from blocks b left join copied c on c.old = b.executed_by
where b.trace_id = :parent and b.index < :at order by b.index
