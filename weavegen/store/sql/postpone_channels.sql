-- Keeps the bridge from looking at channels for :seconds seconds, except those that workers hold.
update channels set look_at = clock_timestamp() + make_interval(secs => :seconds)
where look_at < clock_timestamp() + make_interval(secs => :seconds)
