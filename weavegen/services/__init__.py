"""The embedded services of one machine: PostgreSQL, Redis, a small model, Celery workers."""
