-- Names of the materialised views.
select matviewname from pg_matviews where schemaname = current_schema()
