-- Stores a message from Discord, unless it is stored already or has no text; it counts as fetched in either case.
-- about: Discord's id of the message that it answers, or null. The channel is locked.
with received as (
  select :discord_id as discord_id where :text <> ''
    and not exists (select from messages where channel_id = :channel and discord_id = :discord_id)
),
counted as (
  update channels set fetched = greatest(fetched, cast(:discord_id as bigint)),
    messages = messages + (select count(*) from received)
  where id = :channel returning messages
)
insert into messages (channel_id, number, kind, author, own, text, about, discord_id)
select :channel, messages, 'message', :author, false, :text,
  (select number from messages where channel_id = :channel and discord_id = cast(:about as text)), :discord_id
from counted, received
