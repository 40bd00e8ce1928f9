-- Makes the role {reader}, which `weavegen sql` uses. The first migration grants it what it may read.
do $$
begin
  if not exists (select from pg_roles where rolname = '{reader}') then create role {reader}; end if;
end
$$;
alter role {reader} login noinherit connection limit 32;
alter role {reader} set default_transaction_read_only = on;
alter role {reader} set statement_timeout = '10min';
-- Only a superuser can change this: disk space for the sorts and hashes of a query.
alter role {reader} set temp_file_limit = '2GB';
