-- Ticks whose blocks are still there.
live as (select k.* from ticks k join traces t on t.id = k.trace_id where {scope} and {store/live_tick})
