-- The jobs among :ids, or among all (null), whose texts the model writes.
select id from jobs
where model = :model and (cast(:ids as bigint[]) is null or id = any(cast(:ids as bigint[])))
