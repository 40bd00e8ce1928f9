-- By way of the steps of the ticks, which have an index: a trace may have a million candidates.
select c.block_index, count(*) from steps s join candidates c on c.step_id = s.id
where s.trace_id = :trace and s.tick between :first_tick and :last_tick and s.kind = 'sample'
  and c.block_index >= :first and c.block_index < :end and c.type not in ('bm25-query', 'next-type')
group by c.block_index
