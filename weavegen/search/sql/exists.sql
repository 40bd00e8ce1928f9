-- Whether a row of {table} is there.
select exists (select from {table} where id = :id)
