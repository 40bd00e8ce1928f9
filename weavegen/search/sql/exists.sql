-- Whether there is a trace or job.
select exists (select from {table}s where id = :id)
