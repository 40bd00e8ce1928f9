-- Records that a channel is closed, or open.
update channels set closed_at = case when :closed then clock_timestamp() end where id = :channel
