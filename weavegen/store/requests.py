"""Requests in Postgres: what users ask the toolsmith for, the status of each request, and every change of it.

A request's status follows from the trace that works on it. Only `follow_traces` writes it, from the rows of the
trace: the sweeper calls it each second, and so does everything that reads or changes requests, so that nobody sees
a stale status. The trace's program can't write it: it does not know that it is cancelled, fails, or is queued.
"""

import datetime
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from weavegen import sql
from weavegen.database import Connection
from weavegen.errors import UsageError, required
from weavegen.store.states import RequestStatus, TraceStatus
from weavegen.trace.render import one_line

log = logging.getLogger(__name__)
S = RequestStatus

SUCCESSORS: dict[RequestStatus, frozenset[RequestStatus]] = {
    S.NOT_STARTED: frozenset({S.IN_PROGRESS, S.CANCELED}),
    S.IN_PROGRESS: frozenset({S.WAITING_FEEDBACK, S.SUCCEEDED, S.FAILED, S.CANCELED}),
    S.WAITING_FEEDBACK: frozenset({S.IN_PROGRESS, S.FAILED, S.CANCELED}),
    S.SUCCEEDED: frozenset(),
    S.FAILED: frozenset({S.NOT_STARTED}),
    S.CANCELED: frozenset({S.NOT_STARTED}),
}
"""The statuses that may follow each status. A request that is over can only be restarted with `weavegen retry`."""
OVER = frozenset({S.SUCCEEDED, S.FAILED, S.CANCELED})
MAX_KEPT_CHARS = 4_000
"""Longer reasons, questions and results are cut."""


@dataclass(frozen=True)
class RequestSpec:
    """What a user asks for."""

    objective: str
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()


@dataclass(frozen=True)
class RequestRow:
    """A request with its status."""

    id: int
    asked_by: str
    objective: str
    requirements: list[str]
    constraints: list[str]
    revision: int
    status: str
    question: str | None
    result: str | None
    trace_id: int | None
    job_id: int | None
    created_at: datetime.datetime


@dataclass(frozen=True)
class Change:
    """One change of a request."""

    at: datetime.datetime
    what: str
    status: str
    reason: str
    changed: dict[str, Any] | None


@dataclass(frozen=True)
class Standing:
    """The status of a request according to its trace."""

    status: RequestStatus
    reason: str
    at: datetime.datetime | None = None
    """When it began; None: now."""
    result: str | None = None


def rows(
    conn: Connection, *, id: int | None = None, statuses: Sequence[str] | None = None, user: str | None = None
) -> list[RequestRow]:
    """Requests, by id."""
    parameters = {"id": id, "statuses": None if statuses is None else list(map(str, statuses)), "user": user}
    return [RequestRow(**row) for row in sql.run(conn, "store/requests", **parameters).mappings()]


def load(conn: Connection, id: int) -> RequestRow:
    """One request. Raises UsageError if there is none with this id."""
    row = next(iter(rows(conn, id=id)), None)
    return required(row, f"there is no request {id}: `weavegen request list` lists them")


def changes(conn: Connection, id: int) -> list[Change]:
    """All changes of a request, in order."""
    return [Change(*row) for row in sql.run(conn, "store/request_changes", request=id)]


def insert(conn: Connection, spec: RequestSpec, user: str) -> int:
    """Write a request that no trace works on yet. Returns its id."""
    values = asdict(spec)
    id = int(sql.run(conn, "store/insert_request", user=user, **values).scalar_one())
    _record(conn, id, S.NOT_STARTED, spec.objective, what="created", changed=values)
    return id


def lock_open(conn: Connection, id: int) -> RequestRow:
    """A request with its current status, locked until the transaction ends. Raises UsageError if it is over."""
    sql.run(conn, "store/lock_request", request=id)
    follow_traces(conn, id)
    row = load(conn, id)
    if S(row.status) in OVER:
        raise UsageError(f"request {id} is over, it is {row.status}: make another with `weavegen request create`")
    return row


def change(conn: Connection, row: RequestRow, spec: RequestSpec, reason: str) -> None:
    """Record that the user has changed the request. The trace reads it at its next stage."""
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(spec).items()}
    changed = {name: value for name, value in values.items() if value != getattr(row, name)}
    sql.run(conn, "store/change_request", request=row.id, **values)
    _record(conn, row.id, S(row.status), reason, what="updated", changed=changed)


def set_status(
    conn: Connection, row: RequestRow, status: RequestStatus, reason: str, result: str | None = None, **values: Any
) -> None:
    """Give a locked request another status. Raises ValueError unless SUCCESSORS allows it. `values`: see `_record`."""
    if status not in SUCCESSORS[S(row.status)]:
        raise ValueError(f"request {row.id} is {row.status}: it can't become {status}")
    question = reason[:MAX_KEPT_CHARS] if status is S.WAITING_FEEDBACK else None
    columns = {"status": status, "question": question, "result": None if result is None else result[:MAX_KEPT_CHARS]}
    sql.run(conn, "store/set_request_status", request=row.id, **columns)
    _record(conn, row.id, status, reason, **values)


def follow_traces(conn: Connection, id: int | None = None) -> int:
    """Give requests the status that follows from their traces; `id`: only this one. Returns how many changed.

    Statuses that nobody saw in between are recorded too, with the times at which they began.
    """
    changed = 0
    while traces := sql.run(conn, "store/requests_to_follow", id=id).all():
        changed += len(traces)
        if OVER.isdisjoint([_follow(conn, trace) for trace in traces]):  # the trace of one that is over may be retried
            break
    return changed


def _follow(conn: Connection, trace: Any) -> RequestStatus | None:
    """Give a request its status. None: this failed, which must not keep the sweeper from all its other work."""
    try:
        with conn.transaction():
            now = standing(trace)
            row = load(conn, trace.id)
            if trace.trace != row.trace_id:
                sql.run(conn, "store/attach_request", request=row.id, trace=trace.trace)
                set_status(conn, row, S.NOT_STARTED, f"tried again, as trace {trace.trace}")
                row = load(conn, row.id)
            if now.status == row.status != S.WAITING_FEEDBACK:
                return now.status
            if now.status not in SUCCESSORS[S(row.status)]:
                starts = row.status == S.NOT_STARTED
                reason = f"trace {trace.trace} works on it" if starts else "it waits no longer"
                set_status(conn, row, S.IN_PROGRESS, reason, at=trace.started_at if starts else None)
                row = load(conn, row.id)
            set_status(conn, row, now.status, now.reason, at=now.at, result=now.result)
            return now.status
    except Exception:
        log.exception("request %d can't follow trace %d: unexpected error", trace.id, trace.trace)
        return None


def standing(row: Any) -> Standing:
    """The status of a request according to its trace, given as a row of requests_to_follow.sql."""
    if row.status == TraceStatus.QUEUED:
        return Standing(S.NOT_STARTED, f"trace {row.trace} is queued")
    if row.status == TraceStatus.RUNNING:
        if row.asked_at is not None:
            return Standing(S.WAITING_FEEDBACK, row.question or "It asks, without words.", row.asked_at)
        return Standing(S.IN_PROGRESS, f"trace {row.trace} works on it", row.started_at)
    if row.status == TraceStatus.CANCELLED:
        return Standing(S.CANCELED, f"trace {row.trace} was cancelled", row.finished_at)
    if row.status == TraceStatus.FAILED:
        return Standing(S.FAILED, row.failure or f"trace {row.trace} failed", row.finished_at)
    returned = row.returned if isinstance(row.returned, dict) else {}
    result = returned.get("result")
    result = result if isinstance(result, str) else None
    if returned.get("success") is True:
        return Standing(S.SUCCEEDED, result or "done", row.finished_at, result)
    error = returned.get("error") or result
    reason = str(error) if error else f"it ended before it was done: {row.because or 'no reason is recorded'}"
    return Standing(S.FAILED, reason, row.finished_at, result)


def _record(conn: Connection, id: int, status: RequestStatus, reason: str, **values: Any) -> None:
    """Add a row to the history of a request. `values`: `what` (else `status`), `at` (else now), `changed`."""
    values = {"what": "status", "at": None, "changed": None} | values
    text = one_line(reason)[:MAX_KEPT_CHARS]
    sql.run(conn, "store/save_request_change", request=id, status=status, reason=text, **values)
