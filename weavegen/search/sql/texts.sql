-- The texts of hits, in their order: `block` is blocks.id, or `example` is examples.id, and the other is null. An example
-- has no job, trace, index and moment. Texts that are gone are left out.
select h.score, b.id as block, e.id as example, t.job_id as job, b.trace_id as trace, b.index, b.created_at as recorded,
  coalesce(b.type, e.type) as type, coalesce(b.body, e.body) as body
from unnest(cast(:ids as bigint[]), cast(:examples as boolean[]), cast(:scores as double precision[]))
  with ordinality h (id, example, score, place)
left join blocks b on b.id = h.id and not h.example
left join traces t on t.id = b.trace_id
left join examples e on e.id = h.id and h.example
where b.id is not null or e.id is not null order by h.place
