-- Rows of the view.
select * from stepwise_examples
where trace_id = :trace
  and (tick, candidate_id) in (select * from unnest(cast(:ticks as bigint[]), cast(:candidates as bigint[])))
