-- The hits of a block's queries. A query's retrieval is the next one in its run of the tick.
with asked as (
  select distinct (
    select r.id from steps s join retrievals r on r.step_id = s.id
    where s.trace_id = q.trace_id and s.tick = q.tick and s.run = q.run and s.ordinal > q.ordinal
      and s.kind = 'retrieve'
    order by s.ordinal limit 1
  ) as retrieval
  from steps q
  where q.trace_id = :trace and q.tick = :tick and q.kind = 'sample' and exists (
    select from candidates c
    where c.step_id = q.id and c.block_index = :index and c.type in ('bm25-query', 'next-type')
  )
)
select r.id, r.query, r.before, s.run, s.ordinal, h.rank, h.score, h.used, h.example_id,
  b.trace_id, b.index, coalesce(b.type, e.type) as type, left(coalesce(b.body, e.body), 600) as body
from asked join retrievals r on r.id = asked.retrieval join steps s on s.id = r.step_id
left join retrieval_hits h on h.retrieval_id = r.id
left join blocks b on b.id = h.block_id left join examples e on e.id = h.example_id
order by s.ordinal, h.rank
