-- The revision of the schema, as alembic keeps it.
select version_num from alembic_version
