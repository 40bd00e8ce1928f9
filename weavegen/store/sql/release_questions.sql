-- The question of each row of the view {view}, by the columns of its key.
select {key}, question from {view} where trace_id = :trace
