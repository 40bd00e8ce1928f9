"""Beat sends its tasks whatever the clock does."""

import datetime
import sys
import time
from typing import Any

import pytest
from celery.beat import Scheduler

from tasks import app


class Recording(Scheduler):  # type: ignore[misc]
    producer = None

    def __init__(self, **options: Any) -> None:
        self.sent: list[str] = []
        super().__init__(**options)

    def apply_async(self, entry: Any, *_: Any, **__: Any) -> None:
        self.sent.append(entry.name)


def test_tasks_are_sent_after_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now, back = app.now, datetime.timedelta(0)
    monkeypatch.setattr(app, "now", lambda: now() - back)
    scheduler = Recording(app=app)
    scheduler.tick()
    back = datetime.timedelta(hours=1)
    end = time.monotonic() + 10
    while "sweep" not in scheduler.sent and time.monotonic() < end:
        time.sleep(max(0.0, min(scheduler.tick(), 0.1)))
    assert "sweep" in scheduler.sent
    assert app.conf.beat_schedule is sys.modules["tasks.app"].schedule
