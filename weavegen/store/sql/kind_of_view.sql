-- What kind of view it is, as drop takes it. No row: there is none.
select case relkind when 'm' then 'materialized view' else 'view' end from pg_class where oid = to_regclass(:name)
