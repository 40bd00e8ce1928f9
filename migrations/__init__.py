"""The schema's history. `weavegen up` applies new migrations; `alembic revision` creates one."""
