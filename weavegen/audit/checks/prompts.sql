-- proves: the prompt of every done sample and score step is recorded and consists of existing blocks
-- subject: steps
with {audit/live}
select s.trace_id, 'step ' || s.id, case
    when p.step_id is null then format('this %s step is done, but its prompt is missing', s.kind)
    when s.kind not in ('sample', 'score') or s.status <> 'done'
      then format('this %s step is %s, but has a prompt', s.kind, s.status)
    when p.trace_id <> s.trace_id then format('its prompt is recorded for trace %s', p.trace_id)
    else format('its prompt consists of blocks %s to %s of %s', p.first_block,
      (s.request #>> '{prompt,window,1}')::bigint - 1, t.blocks)
  end
from steps s join traces t on t.id = s.trace_id
left join prompts p on p.step_id = s.id
left join live k on k.trace_id = s.trace_id and k.number = s.tick and k.run = s.run
where {scope} and case
  when p.step_id is null
    then s.status = 'done' and s.kind in ('sample', 'score') and s.copy_of is null
  else s.status <> 'done' or s.kind not in ('sample', 'score') or p.trace_id <> s.trace_id
    or k.id is not null and (p.first_block < (s.request #>> '{prompt,window,0}')::bigint
      or p.first_block > (s.request #>> '{prompt,window,1}')::bigint
      or (s.request #>> '{prompt,window,1}')::bigint > greatest(t.blocks, 2))
end
order by 1, s.id
