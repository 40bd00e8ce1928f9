-- Takes the channels that the bridge should look at now. Those of a trace that is over are due too, while they have
-- unsent messages.
update channels set look_at = clock_timestamp() + make_interval(secs => :hold)
where id in (
  select c.id from channels c join traces t on t.id = c.trace_id
  where c.look_at < clock_timestamp() and c.failure is null and c.name ~ :name
    and (c.closed_at is null and t.status = 'running'
      or exists (select from messages m where m.channel_id = c.id and m.own and m.sent_at is null))
  order by c.look_at limit :limit for update of c skip locked
)
returning id, trace_id, name, fetched, opened_at
