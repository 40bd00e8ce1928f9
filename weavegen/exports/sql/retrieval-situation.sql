-- The newest block of each type before the block, of the same subagent.
select distinct on (b.type) b.type, b.body from blocks b
where b.trace_id = :trace and b.index < :index and b.subagent = :subagent
  and b.type in ('task-reminder', 'orientation', 'outcome') and (b.type <> 'orientation' or b.compiles)
order by b.type, b.index desc
