select r.id, r.query, r.before, s.run, s.ordinal, h.rank, h.score, h.used, h.example_id,
  b.trace_id, b.index, coalesce(b.type, e.type) as type, left(coalesce(b.body, e.body), 600) as body
from steps s join retrievals r on r.step_id = s.id
left join retrieval_hits h on h.retrieval_id = r.id
left join blocks b on b.id = h.block_id left join examples e on e.id = h.example_id
where s.trace_id = :trace and s.tick = :tick and s.kind = 'retrieve' order by s.ordinal, h.rank
