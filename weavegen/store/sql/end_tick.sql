-- Ends a tick. ticks: how many of the trace are over now. Returns the tokens that were sampled for the trace, those of
-- the tick's last step too, which were counted after the trace was locked.
with ended as (update ticks set finished_at = clock_timestamp() where trace_id = :trace and number = :tick)
update traces set ticks = :ticks where id = :trace returning sampled_tokens
