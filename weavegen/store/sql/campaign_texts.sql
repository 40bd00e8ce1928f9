-- The texts that a campaign asks about, of the blocks or candidates `ids`, in batches of `size` texts of one trace.
-- Without texts of runs of ticks that were started over.
select row_number() over (order by c.trace_id, c.step_id, c.position, i.id) as place,
  c.trace_id, c.id as candidate_id, case when :over = 'blocks' then i.id end as block_id, c.type,
  (row_number() over (partition by c.trace_id order by c.step_id, c.position, i.id) - 1) / :size as number
from unnest(cast(:ids as bigint[])) i (id)
left join blocks b on b.id = i.id and :over = 'blocks'
join candidates c on c.id = case when :over = 'blocks' then b.candidate_id else i.id end
join steps s on s.id = c.step_id
join ticks k on {store/tick_of_step}
where c.type = any(cast(:types as text[])) or (cast(:assertions as boolean) and exists (
  select from grounded_labels g join blocks e on e.executed_by = g.step_id
  where e.candidate_id = c.id and e.type = c.type))
