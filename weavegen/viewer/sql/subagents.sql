-- The subagents of a trace.
select * from subagents where trace_id = :trace order by id
