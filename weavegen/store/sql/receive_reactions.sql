-- Stores the reactions of people to a message that are not stored yet. :reactions is Discord's list, of each emoji the
-- number of reactions, and whether one is the bot's own. Who reacted is not told; 100 of an emoji are stored at most.
with told as (
  select m.number as about, one -> 'emoji' ->> 'name' as emoji,
    least((one ->> 'count')::int, 100) - coalesce((one ->> 'me')::boolean, false)::int as many
  from messages m, jsonb_array_elements(cast(:reactions as jsonb)) one
  where m.channel_id = :channel and m.discord_id = :discord_id
),
missing as (
  select about, emoji, row_number() over () as place
  from told, generate_series(1, many - (
    select count(*)::int from messages k
    where k.channel_id = :channel and k.kind = 'reaction' and not k.own and k.about = told.about and k.text = emoji
  ))
  where emoji is not null
),
counted as (
  update channels set messages = messages + (select count(*) from missing)
  where id = :channel and exists (select from missing)
  returning messages - (select count(*) from missing) as before
)
insert into messages (channel_id, number, kind, author, own, text, about)
select :channel, before + place, 'reaction', 'people', false, emoji, about from missing, counted
