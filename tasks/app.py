"""The Celery app. `celery -A tasks worker -Q sample,score` works as Celery users expect.

Messages carry ids only and may be lost, doubled or late: the journal in Postgres decides what is done.
"""

from celery import Celery

from weavegen import config
from weavegen.services.redis import broker_url

settings = config.load()
schedule = {"sweep": {"task": "weavegen.sweep", "schedule": 1.0, "options": {"expires": 5.0}}}
if settings.discord_token is not None:
    schedule["discord"] = {"task": "weavegen.discord", "schedule": 1.0, "options": {"expires": 2.0}}

app = Celery(
    "weavegen",
    broker=broker_url(settings),
    include=["tasks.steps", "tasks.execute", "tasks.traces", "tasks.discord"],
)
app.conf.update(
    accept_content=["json"],
    task_serializer="json",
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_default_queue="control",
    task_create_missing_queues=True,
    worker_prefetch_multiplier=1,
    worker_send_task_events=True,
    task_send_sent_event=False,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    # Far beyond any task: what a dead worker held comes back through the sweeper, not through Redis.
    broker_transport_options={"visibility_timeout": 6 * 3600},
    beat_schedule=schedule,
)
