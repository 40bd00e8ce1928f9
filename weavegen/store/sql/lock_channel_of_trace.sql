-- Locks a trace's channel, so that two workers that hold the same step come one after the other.
select id from channels where trace_id = :trace and name = :name for update
