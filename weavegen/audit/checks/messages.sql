-- proves: a channel's messages are numbered from 1 without gaps, and its counter equals their number
-- subject: channels
select c.trace_id, 'channel ' || c.name, format('its counter is %s; there are %s messages, numbered %s to %s',
    c.messages, m.n, m.first, m.last)
from channels c join traces t on t.id = c.trace_id cross join lateral (
  select count(distinct m.number) as n, coalesce(min(m.number), 1) as first,
    coalesce(max(m.number), 0) as last
  from messages m where m.channel_id = c.id
) m
where {scope} and (m.n, m.first, m.last) <> (c.messages, 1::bigint, c.messages)
order by 1
