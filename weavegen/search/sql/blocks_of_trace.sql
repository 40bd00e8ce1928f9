-- How many blocks a trace has.
select blocks from traces where id = :trace
