-- The agent's first message or reaction that is to be sent to Discord. about: Discord's id of the message that it
-- answers or reacts to, if Discord has it.
select m.id, m.kind, m.text, o.discord_id as about
from messages m left join messages o on o.channel_id = m.channel_id and o.number = m.about
where m.channel_id = :channel and m.own and m.sent_at is null order by m.number limit 1
