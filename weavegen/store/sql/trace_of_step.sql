-- The trace of a step.
select trace_id from steps where id = :step
