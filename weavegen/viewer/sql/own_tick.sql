-- Whether the trace t did the tick k itself: in a fork, ticks that ended before it began are copies.
(t.fork_of is null or k.finished_at >= t.started_at)
