-- Rows of the view.
select * from stepwise_examples
where trace_id = :trace
  and (tick, ending) in (select * from unnest(cast(:ticks as bigint[]), cast(:endings as bigint[])))
