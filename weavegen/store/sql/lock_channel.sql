-- Locks a channel.
select id from channels where id = :channel for update
