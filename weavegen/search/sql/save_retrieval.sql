-- A query with its hits, best first: block or example ids, which of them are examples, and their scores.
with retrieval as (
  insert into retrievals (trace_id, step_id, query, before, least_score)
  values (:trace, :step, :query, :before, :least_score) returning id
)
insert into retrieval_hits (retrieval_id, rank, block_id, example_id, score, used)
select r.id, h.rank, case when not h.example then h.id end, case when h.example then h.id end, h.score,
  h.rank <= :limit
from retrieval r, unnest(cast(:ids as bigint[]), cast(:examples as boolean[]), cast(:scores as double precision[]))
  with ordinality h(id, example, score, rank)
