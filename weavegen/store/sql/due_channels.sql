-- Takes the channels that the bridge should look at now. Those of a trace that is over are due too, while they have
-- unsent messages. after: messages up to this Discord id have been fetched. Discord's ids begin with the time, in
-- milliseconds since 2015: where nothing has been fetched, it is the first id that Discord could give when the channel
-- was opened. watched: reactions to messages after this id are fetched, those to the newest 20. name: its id at
-- Discord.
with held as (
  update channels set look_at = clock_timestamp() + make_interval(secs => :hold)
  where id in (
    select c.id from channels c join traces t on t.id = c.trace_id
    where c.look_at < clock_timestamp() and c.failure is null and c.name ~ :name
      and (c.closed_at is null and t.status = 'running'
        or exists (select from messages m where m.channel_id = c.id and m.own and m.sent_at is null))
    order by c.look_at limit :limit for update of c skip locked
  )
  returning id, trace_id, name,
    coalesce(fetched, (floor(extract(epoch from opened_at) * 1000)::bigint - 1420070400000) << 22) as after
)
select id, trace_id, name, after, least(after, (
  select min(discord_id::bigint) - 1 from (
    select discord_id from messages m where m.channel_id = held.id and m.discord_id is not null
    order by number desc limit 20
  ) newest
)) as watched
from held
