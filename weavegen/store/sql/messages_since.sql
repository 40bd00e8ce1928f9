-- The messages and reactions of a channel after a number, in order. id: the number in the channel.
select number as id, kind, author, own, text, about, created_at from messages
where channel_id = :channel and number > :number order by number
