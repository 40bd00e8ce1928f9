-- proves: the columns blocks, bytes, written and ticks of a trace equal the sums over its blocks and ticks
-- subject: traces
select t.id, 'its row', concat_ws('; ',
    case when t.blocks <> coalesce(b.n, 0)
      then format('blocks is %s, but the trace has %s', t.blocks, coalesce(b.n, 0)) end,
    case when t.bytes <> coalesce(b.size, 0)
      then format('bytes is %s, but its blocks have %s', t.bytes, coalesce(b.size, 0)) end,
    case when t.written <> coalesce(b.written, 0)
      then format('written is %s, but %s blocks name a candidate', t.written, coalesce(b.written, 0)) end,
    case when t.ticks <> coalesce(k.n, 0)
      then format('ticks is %s, but %s are finished', t.ticks, coalesce(k.n, 0)) end)
from traces t
left join (
  select b.trace_id, count(*) as n, sum(octet_length(b.rendered)) as size, count(b.candidate_id) as written
  from blocks b join traces t on t.id = b.trace_id where {scope} group by 1
) b on b.trace_id = t.id
left join (
  select k.trace_id, count(*) as n from ticks k join traces t on t.id = k.trace_id
  where {scope} and k.number > 0 and k.finished_at is not null group by 1
) k on k.trace_id = t.id
where {scope} and (t.blocks, t.bytes, t.written, t.ticks)
  <> (coalesce(b.n, 0), coalesce(b.size, 0), coalesce(b.written, 0), coalesce(k.n, 0))
order by 1
