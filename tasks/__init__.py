"""weavegen's Celery tasks. Each does one small thing to one trace; Postgres remembers."""

from tasks.app import app

__all__ = ["app"]
