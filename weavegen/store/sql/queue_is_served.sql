-- Whether a worker that takes steps of the queue of the step s has reported within `silent` seconds.
exists (
  select from workers w where s.queue = any (w.queues) and w.seen_at > clock_timestamp() - make_interval(secs => :silent)
)
