-- Whether workers of a version, which advance traces, have reported lately.
select exists (
  select from workers
  where version = :version and 'control' = any(queues)
    and seen_at > clock_timestamp() - make_interval(secs => :silent)
)
