-- Adds a message or a reaction to a channel, with the next number.
with counted as (update channels set messages = messages + 1 where id = :channel returning messages)
insert into messages (channel_id, number, kind, author, own, text, about)
select :channel, messages, :kind, :author, :own, :text, cast(:about as bigint) from counted
returning number
