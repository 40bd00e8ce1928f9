"""Requests to the toolsmith: the Python API behind `weavegen request`.

Example: number = requests.create("How many words has /app/text.txt?", constraints=["no network"]), and later
requests.show(number).request.status
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from weavegen import config, sql
from weavegen.agents.toolsmith import Task
from weavegen.engine.enqueueing import choose_packages, job_options, read
from weavegen.engine.mcp_file import servers_of
from weavegen.errors import UsageError
from weavegen.kernel.settings import check_json
from weavegen.store import jobs, steps, traces
from weavegen.store import requests as store
from weavegen.store.jobs import Order
from weavegen.store.requests import Change, RequestRow, RequestSpec
from weavegen.store.session import database
from weavegen.store.states import RequestStatus
from weavegen.trace.render import clean

AGENT = "toolsmith"
MAX_TEXTS = 100  # requirements of a request, and constraints
MAX_TEXT_CHARS = 10_000  # characters of an objective, a requirement, a constraint, an answer or a reason
MAX_CHARS = 80_000  # characters of a request: as JSON, with escapes, it must fit into the answer of a look-up tool


@dataclass(frozen=True)
class Shown:
    """A request and its history."""

    request: RequestRow
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
    mcp: str | Path | None = None,
) -> int:
    """Make a request, and enqueue the trace that works on it. Returns the request's number. Raises UsageError.

    user: whose request it is; by default WEAVEGEN_USER or the login name. Other options as in `weavegen.enqueue`.
    """
    content = checked(RequestSpec(objective, tuple(requirements), tuple(constraints)))
    options = job_options("request", AGENT, model, seed, settings, user)
    options["mcp_servers"] = None if mcp is None else servers_of(read(mcp), mcp, AGENT)
    user, packages = options["enqueued_by"], choose_packages(config.load())
    with database().begin() as conn:
        number = store.insert(conn, content, user)
        task = Task(content.objective, content.requirements, content.constraints, user, number)
        order = Order(f"request-{number}.json", msgspec.json.encode(task).decode())
        job = jobs.enqueue(conn, [order], packages=packages, **options | {"name": f"request {number}"})
        trace = sql.run(conn, "store/traces_of_job", job=job).scalar_one()
        sql.run(conn, "store/attach_request", request=number, trace=trace)
    return number


def show(number: int) -> Shown:
    """A request and its history. Raises UsageError."""
    with database().begin() as conn:
        store.follow_traces(conn, number)
        return Shown(store.load(conn, number), store.changes(conn, number))


def listed(*, statuses: Sequence[str] | None = None, user: str | None = None) -> list[RequestRow]:
    """Requests in the order of their numbers, by default all. Raises UsageError."""
    for status in statuses or ():
        if status not in set(RequestStatus):
            raise UsageError(f"there is no status {status!r:.50}: choose one of {', '.join(RequestStatus)}")
    check_json({"user": user}, "the user")
    with database().begin() as conn:
        store.follow_traces(conn)
        return store.rows(conn, statuses=statuses, user=user)


def update(
    number: int,
    *,
    objective: str | None = None,
    requirements: Sequence[str] | None = None,
    constraints: Sequence[str] | None = None,
    reason: str | None = None,
) -> RequestRow:
    """Change a request; None leaves a part as it is. The agent reads it at its next tick. Raises UsageError."""
    if objective is None and requirements is None and constraints is None:
        raise UsageError("nothing to change: give an objective, requirements or constraints")
    with database().begin() as conn:
        row = store.lock_open(conn, number)
        content = RequestSpec(
            row.objective if objective is None else objective,
            tuple(row.requirements if requirements is None else requirements),
            tuple(row.constraints if constraints is None else constraints),
        )
        why = "the user changed it" if reason is None else text(reason, "the reason")
        store.change(conn, row, checked(content), why)
        return store.load(conn, number)


def answer(number: int, reply: str) -> RequestRow:
    """Answer the question that a request's trace waits on. The trace continues from there. Raises UsageError."""
    reply = text(reply, "the answer")
    with database().begin() as conn:
        row = store.lock_open(conn, number)
        waits = row.status == RequestStatus.WAITING_FEEDBACK and row.trace_id is not None
        if not waits or not steps.answer(conn, int(row.trace_id or 0), reply):
            hint = f"see `weavegen request show {number}`"
            raise UsageError(f"request {number} has no open question, its status is {row.status}: {hint}")
        store.set_status(conn, row, RequestStatus.IN_PROGRESS, reply, what="answered")
        return store.load(conn, number)


def cancel(number: int, reason: str) -> RequestRow:
    """Cancel a request and its trace. What the trace wrote stays. Raises UsageError."""
    why = text(reason, "the reason")
    with database().begin() as conn:
        row = store.lock_open(conn, number)
        if row.job_id is not None:
            traces.cancel(conn, row.job_id)
        store.set_status(conn, row, RequestStatus.CANCELED, why, what="canceled")
        return store.load(conn, number)


def checked(content: RequestSpec) -> RequestSpec:
    """The content with cleaned texts. Raises UsageError if it can't be stored."""
    for name, texts in (("requirements", content.requirements), ("constraints", content.constraints)):
        if isinstance(texts, str) or len(texts) > MAX_TEXTS:
            raise UsageError(f"{name}: give a list of {MAX_TEXTS} texts at most")
    cleaned = RequestSpec(
        text(content.objective, "the objective"),
        tuple(text(requirement, "a requirement") for requirement in content.requirements),
        tuple(text(constraint, "a constraint") for constraint in content.constraints),
    )
    if len("".join([cleaned.objective, *cleaned.requirements, *cleaned.constraints])) > MAX_CHARS:
        raise UsageError(f"the request has more than {MAX_CHARS:,} characters: give shorter texts")
    return cleaned


def text(value: str, what: str) -> str:
    """A user's text, stripped. `what` names it in the UsageError."""
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{what} is empty: give a text")
    if len(value) > MAX_TEXT_CHARS:
        raise UsageError(f"{what} is longer than {MAX_TEXT_CHARS:,} characters: give a shorter one")
    if clean(value) != value.replace("\r\n", "\n").replace("\r", "\n"):
        raise UsageError(f"{what} holds a control character: leave it out")
    return clean(value).strip()
