-- The steps of a trace that sampled texts for blocks, without runs of ticks that were started over.
select s.id from steps s
join ticks k on {store/tick_of_step}
where s.trace_id = :trace and s.kind = 'sample'
  and exists (select from candidates c where c.step_id = s.id and c.type not in ('bm25-query', 'next-type'))
order by s.id
