-- Messages that the bridge has not sent to Discord yet count as sent: it sends them once, for the other trace.
with seen as (
  select c.id, (
    select coalesce(max(number), 0) from messages where channel_id = c.id and created_at <= to_timestamp(:moment)) as n
  from channels c where c.trace_id = :parent and c.opened_at <= to_timestamp(:moment)
), opened as (
  insert into channels (trace_id, name, messages, opened_at, closed_at, fetched, failure)
  select :child, c.name, s.n, c.opened_at, case when c.closed_at <= to_timestamp(:moment) then c.closed_at end, c.fetched,
    c.failure
  from channels c join seen s on s.id = c.id returning id, name
)
insert into messages (channel_id, number, kind, author, own, text, about, created_at, sent_at, discord_id)
select o.id, w.number, w.kind, w.author, w.own, w.text, w.about, w.created_at,
  coalesce(w.sent_at, clock_timestamp()), w.discord_id
from seen s join channels c on c.id = s.id join opened o on o.name = c.name
join messages w on w.channel_id = c.id and w.number <= s.n order by w.id
