"""The schema's history. `weavegen up` applies what is new; `alembic revision` adds to it."""
