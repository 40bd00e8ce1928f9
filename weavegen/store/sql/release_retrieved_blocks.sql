-- The retrieved texts that were put into prompts of these traces, each with the block that was written next.
-- future: the block was still in the window, or was recorded after it was shown.
select r.trace_id, h.example_id, h.block_id, b.trace_id as source, b.body, w.id as written_id, w.body as written,
  case when b.trace_id = r.trace_id then b.index >= r.before
    else b.created_at > coalesce(s.finished_at, s.claimed_at) end as future
from retrievals r
join retrieval_hits h on h.retrieval_id = r.id and h.used
join steps s on s.id = r.step_id
left join blocks b on b.id = h.block_id
left join lateral (
  select (n.request -> 'prompt' -> 'window' ->> 1)::bigint as index from steps n
  where n.trace_id = s.trace_id and n.tick = s.tick and n.run = s.run and n.ordinal > s.ordinal
    and n.kind = 'sample'
  order by n.ordinal limit 1
) n on true
left join blocks w on w.trace_id = r.trace_id and w.index = n.index
where r.trace_id = any(cast(:traces as bigint[])) order by r.id, h.rank
