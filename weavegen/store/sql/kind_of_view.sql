-- The kind of a view, as in a drop statement. No row: there is none.
select case relkind when 'm' then 'materialized view' else 'view' end from pg_class where oid = to_regclass(:name)
