-- The jobs among :ids whose texts the model writes.
select id from jobs where id = any(:ids) and model = :model
