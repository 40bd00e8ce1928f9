-- gauge table_rows: Rows of the large tables, as PostgreSQL estimates.
select relname::text as table, n_live_tup as table_rows from pg_stat_user_tables
where relname in ('traces', 'ticks', 'blocks', 'candidates', 'scores', 'steps', 'model_usage') order by relname
