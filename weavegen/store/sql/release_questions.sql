-- The question of each row of the view {view}, and the text that it is about, by the columns of its key.
select {key}, question, body from {view} where trace_id = :trace
