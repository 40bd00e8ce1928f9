-- Lets the bridge look at a channel again in :seconds seconds; with a failure, never.
update channels set look_at = clock_timestamp() + make_interval(secs => :seconds), failure = :failure
where id = :channel
