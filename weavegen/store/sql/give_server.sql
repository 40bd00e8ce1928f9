-- Gives a trace a model server.
update traces set server = :server where id = :trace
