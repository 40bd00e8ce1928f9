-- The comments on tables (column is null) and columns in the database.
select c.relname as table, a.attname as column, d.description as text
from pg_description d
join pg_class c on c.oid = d.objoid
left join pg_attribute a on a.attrelid = c.oid and a.attnum = d.objsubid and d.objsubid > 0
where d.classoid = 'pg_class'::regclass and c.relnamespace = current_schema()::regnamespace
