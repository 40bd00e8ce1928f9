-- The executed steps of a trace, in the order of ids and not of ticks: a subagent's ticks lie inside its caller's.
select id, request, result, claimed_at from steps
where trace_id = :trace and kind = 'execute' and status = 'done' order by id
