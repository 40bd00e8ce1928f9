-- Begins another run of a tick, by this version of weavegen. Ticks after it are those of its subagents, whose blocks are
-- dropped: they keep no rewards.
with restarted as (update ticks set run = run + 1, version = :version where trace_id = :trace and number = :tick),
unrewarded as (
  update ticks set reward = null, protected = false, not_evaluated = 0 where trace_id = :trace and number > :tick
)
update traces set restarts = restarts + 1 where id = :trace
