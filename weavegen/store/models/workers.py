"""Celery workers as they report themselves."""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from weavegen.store.models.columns import column, json, now, table

WORKERS = table(
    "workers",
    "Workers that run. Each reports every few seconds; a row that grows old belongs to a worker that has died.",
    column("process", str, "host:pid, as in steps.worker.", primary_key=True),
    column("node", str, "Celery's name of the worker."),
    column("queues", ARRAY(sa.Text), "The queues that it takes steps from."),
    column("version", str, "Its version of weavegen."),
    json("settings", "Its settings by environment variable. A secret is only a fingerprint."),
    now("started_at", "When it started."),
    column("seen_at", datetime, "When it last reported.", server_default=sa.func.now()),
)
