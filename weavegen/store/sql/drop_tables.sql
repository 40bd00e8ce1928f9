-- Drops all tables of weavegen.
drop table {names}, alembic_version
