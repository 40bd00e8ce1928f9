-- proves: first_block is the index of a tick's first block, and a finished tick has blocks, except in
--   conversations and in restarted calls
-- subject: ticks
select t.id, 'tick ' || k.number, case
    when b.first is null and k.finished_at is null
      then format('first_block is %s, but the trace ends before block %s', k.first_block, e.last + 1)
    when b.first is null then 'it is finished, but has no blocks'
    else format('first_block is %s, but its first block is %s', k.first_block, b.first)
  end
from ticks k join traces t on t.id = k.trace_id join jobs j on j.id = t.job_id
left join (
  select b.trace_id, b.tick, min(b.index) as first
  from blocks b join traces t on t.id = b.trace_id where {scope} group by 1, 2
) b on b.trace_id = k.trace_id and b.tick = k.number
left join lateral (
  select coalesce(max(l.index), -1) as last, (
    select n.first_block from ticks n where n.trace_id = t.id and n.number = k.number + 1) as next
  from blocks l where l.trace_id = t.id and b.first is null
) e on true
where {scope} and case
  when b.first is not null then b.first <> k.first_block
  when k.finished_at is null then k.first_block <> e.last + 1
  when j.agent = any(:conversing) then k.first_block <> coalesce(e.next, e.last + 1)
  when t.status = 'failed' then false
  else k.caller is null or not exists (
    select from ticks a where a.trace_id = k.trace_id and a.number < k.number and a.run > 0)
end
order by 1, k.number
