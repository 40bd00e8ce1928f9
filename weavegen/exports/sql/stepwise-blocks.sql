-- The blocks of these ticks. `label`: whether a block was right; null: unknown.
select b.tick, b.index, b.type, b.body, b.rendered, c.step_id,
  case
    when c.id is null then null when not b.compiles then false when b.ran is not null then b.ran
    when b.preference is not null then b.preference >= 0
  end as label
from blocks b left join candidates c on c.id = b.candidate_id and c.trace_id = b.trace_id
where b.trace_id = :trace and b.tick = any(cast(:ticks as bigint[])) order by b.tick, b.index
