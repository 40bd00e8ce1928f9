-- Whether a tick was begun by another version of weavegen, of which workers that advance traces have reported lately.
select exists (
  select from ticks k join workers w on w.version = k.version
  where k.trace_id = :trace and k.number = :tick and k.version <> :version and 'control' = any(w.queues)
    and w.seen_at > clock_timestamp() - make_interval(secs => :silent)
)
