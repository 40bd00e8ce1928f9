-- gauge database_size_bytes: Size of the database.
select pg_database_size(current_database()) as database_size_bytes
