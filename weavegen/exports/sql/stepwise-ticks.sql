-- Rows of the view.
select * from stepwise_examples where trace_id = :trace and tick = any(cast(:ticks as bigint[]))
