-- The row of a trace in the view {view}.
select * from {view} where trace_id = :trace
