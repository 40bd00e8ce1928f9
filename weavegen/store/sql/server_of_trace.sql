-- The model server of a trace; null: it has none yet.
select server from traces where id = :trace
