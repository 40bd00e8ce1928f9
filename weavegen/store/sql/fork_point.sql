-- The trace and the block that a fork goes on from. That trace is locked, so that it does not advance.
select o.id, t.fork_at from traces t join traces o on o.id = t.fork_of where t.id = :trace for share of o
