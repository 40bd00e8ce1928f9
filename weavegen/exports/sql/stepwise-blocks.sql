-- The blocks of these ticks. `label`: whether a block was right; null: unknown. Of a row that ends with a candidate
-- that was not chosen: the blocks before it, and the candidate in the place of the chosen one.
select k.tick, k.ending, b.index, b.type, coalesce(n.rewritten, l.text, b.body) as body,
  case when l.id is null then b.rendered else replace(b.rendered, b.body, coalesce(n.rewritten, l.text)) end as rendered,
  coalesce(l.step_id, c.step_id) as step_id,
  case
    when l.id is not null then r.ran
    when c.id is null then null when not b.compiles then false when b.ran is not null then b.ran
    when b.preference is not null then b.preference >= 0
  end as label
from unnest(cast(:ticks as bigint[]), cast(:endings as bigint[])) k (tick, ending)
join blocks b on b.trace_id = :trace and b.tick = k.tick
left join candidates c on c.id = b.candidate_id and c.trace_id = b.trace_id
left join candidates e on e.id = k.ending
left join candidates l on l.id = e.id and l.block_index = b.index
left join penalties n on n.candidate_id = l.id
left join trials r on r.candidate_id = l.id
where e.id is null or b.index <= e.block_index
order by k.tick, k.ending, b.index
