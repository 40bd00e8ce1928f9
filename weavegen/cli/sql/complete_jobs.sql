-- Executed by psycopg itself.
select id::text, left(name, 40) from jobs where starts_with(id::text, %s) order by id desc limit %s
