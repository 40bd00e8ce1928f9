-- proves: the model read as many tokens as the conversation's messages have
-- subject: replies
with {audit/live}, upto as (  -- the tokens of all messages of a trace up to a block
  select b.trace_id, b.index, sum(cardinality(o.token_ids)) over w as tokens,
    count(*) filter (where b.type = any(:messages) and o.trace_id is null) over w as unknown
  from blocks b join traces t on t.id = b.trace_id
  left join block_tokens o on o.trace_id = b.trace_id and o.index = b.index and b.type = any(:messages)
  where {scope} window w as (partition by b.trace_id order by b.index)
), read as (
  select s.trace_id, s.id, p.tokens, cardinality(p.token_ids) as opening,
    (s.request #>> '{prompt,window,0}')::bigint as first,
    (s.request #>> '{prompt,window,1}')::bigint as until
  from prompts p join traces t on t.id = p.trace_id join steps s on s.id = p.step_id
  join live k on k.trace_id = s.trace_id and k.number = s.tick and k.run = s.run
  where {scope} and p.token_ids is not null and s.request #>> '{prompt,type}' = 'assistant'
), begun as (select distinct trace_id, first from read), around as (
  select r.id, count(*) as others from read r
  join begun g on g.trace_id = r.trace_id and g.first > r.first and g.first < r.until group by 1
)
select r.trace_id, 'step ' || r.id, format('the model read %s tokens, but the messages have %s',
    r.tokens, m.tokens + r.opening)
from read r join upto l on l.trace_id = r.trace_id and l.index = r.until - 1
left join upto f on f.trace_id = r.trace_id and f.index = r.first - 1
cross join lateral (select l.tokens - coalesce(f.tokens, 0) as tokens) m
left join around a on a.id = r.id
where l.unknown = coalesce(f.unknown, 0)
  -- Each nested conversation may add one BOS token.
  and abs(r.tokens - r.opening - m.tokens) > coalesce(a.others, 0)
order by 1, r.id
