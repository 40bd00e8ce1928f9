"""Requests to the toolsmith, from Python. `weavegen request` is made of these functions.

Example: number = requests.create("How many words has /app/text.txt?", constraints=["no network"]), and later
requests.show(number).request.status
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weavegen import __version__, config
from weavegen.engine.enqueueing import job_seed
from weavegen.errors import UsageError
from weavegen.kernel.settings import check_json, renamed
from weavegen.kernel.settings import settings as read_settings
from weavegen.store import jobs, steps, traces
from weavegen.store import requests as store
from weavegen.store.jobs import Order
from weavegen.store.models import RequestStatus
from weavegen.store.requests import Asked, Change, Row
from weavegen.store.session import engine as database
from weavegen.trace.render import clean

AGENT = "toolsmith"
MOST_TEXTS = 100
"""Requirements, or constraints, of a request."""
LONGEST = 10_000
"""Characters of an objective, a requirement, a constraint, an answer, a reason."""


@dataclass(frozen=True)
class Shown:
    """A request and its history."""

    request: Row
    changes: list[Change]


def create(
    objective: str,
    *,
    requirements: Sequence[str] = (),
    constraints: Sequence[str] = (),
    user: str | None = None,
    model: str | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> int:
    """Make a request, and the trace that will work on it. Returns its number. Raises UsageError.

    `user`: who asks, by default WEAVEGEN_USER or the login name. The other options are as for `weavegen.enqueue`.
    """
    asked = checked(Asked(objective, tuple(requirements), tuple(constraints)))
    user = config.load().user if user is None else config.person(user, "--user")
    values = renamed(dict(settings or {}), warn=True)
    read_settings(values)
    check_json({"model": model}, "the model")
    seed = job_seed(seed)
    with database().begin() as conn:
        number = store.insert(conn, asked, user)
        task = {
            "task": asked.objective,
            "requirements": asked.requirements,
            "constraints": asked.constraints,
            "user": user,
            "request": number,
        }
        job = jobs.enqueue(
            conn,
            [Order(f"request-{number}.json", msgspec.json.encode(task).decode())],
            name=f"request {number}",
            agent=AGENT,
            model=model,
            seed=seed,
            settings=values,
            version=__version__,
            enqueued_by=user,
        )
        store.attach_job(conn, number, job)
    return number


def show(number: int) -> Shown:
    """A request as it stands, with every change of it. Raises UsageError."""
    with database().begin() as conn:
        store.follow(conn, number)
        return Shown(store.load(conn, number), store.changes(conn, number))


def listed(*, statuses: Sequence[str] | None = None, user: str | None = None) -> list[Row]:
    """Requests, by number: of all statuses and users by default. Raises UsageError."""
    for status in statuses or ():
        if status not in set(RequestStatus):
            raise UsageError(f"there is no status {status!r:.50}: choose of {', '.join(RequestStatus)}")
    check_json({"user": user}, "the user")
    with database().begin() as conn:
        store.follow(conn)
        return store.rows(conn, statuses=statuses, user=user)


def update(
    number: int,
    *,
    objective: str | None = None,
    requirements: Sequence[str] | None = None,
    constraints: Sequence[str] | None = None,
    reason: str | None = None,
) -> Row:
    """Change what is asked for; None: that stays. The agent reads it at its next stage. Raises UsageError."""
    if objective is None and requirements is None and constraints is None:
        raise UsageError("nothing to change: give an objective, requirements or constraints")
    with database().begin() as conn:
        row = store.hold_open(conn, number)
        asked = Asked(
            row.objective if objective is None else objective,
            tuple(row.requirements if requirements is None else requirements),
            tuple(row.constraints if constraints is None else constraints),
        )
        why = "the user changed it" if reason is None else text(reason, "the reason")
        store.change(conn, row, checked(asked), why)
        return store.load(conn, number)


def answer(number: int, said: str) -> Row:
    """Answer what a request waits for: its trace goes on exactly where it asked. Raises UsageError."""
    said = text(said, "the answer")
    with database().begin() as conn:
        row = store.hold_open(conn, number)
        waits = row.status == RequestStatus.WAITING_FEEDBACK and row.trace_id is not None
        if not waits or not steps.answer(conn, int(row.trace_id or 0), said):
            raise UsageError(
                f"request {number} asks nothing, it is {row.status}: see `weavegen request show {number}`"
            )
        store.become(conn, row, RequestStatus.IN_PROGRESS, said, what="answered")
        return store.load(conn, number)


def cancel(number: int, reason: str) -> Row:
    """Give a request up: its trace is cancelled, what it wrote stays. Raises UsageError."""
    why = text(reason, "the reason")
    with database().begin() as conn:
        row = store.hold_open(conn, number)
        if row.job_id is not None:
            traces.cancel(conn, row.job_id)
        store.become(conn, row, RequestStatus.CANCELED, why, what="canceled")
        return store.load(conn, number)


def checked(asked: Asked) -> Asked:
    """What is asked for, as it is kept. Raises UsageError."""
    for name, texts in (("requirements", asked.requirements), ("constraints", asked.constraints)):
        if isinstance(texts, str) or len(texts) > MOST_TEXTS:
            raise UsageError(f"{name}: give a list of {MOST_TEXTS} texts at most")
    return Asked(
        text(asked.objective, "the objective"),
        tuple(text(one, "a requirement") for one in asked.requirements),
        tuple(text(one, "a constraint") for one in asked.constraints),
    )


def text(value: str, what: str) -> str:
    """A text that people gave, stripped. Raises UsageError."""
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{what} is empty: say it in words")
    if len(value) > LONGEST:
        raise UsageError(f"{what} is longer than {LONGEST:,} characters: give a shorter one")
    if clean(value) != value.replace("\r\n", "\n").replace("\r", "\n"):
        raise UsageError(f"{what} holds a control character: leave it out")
    return clean(value).strip()
