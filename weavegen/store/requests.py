"""Requests in Postgres: what is asked for, where it stands, and every change of it.

A request's status is that of the trace that works on it. It is written in one place, `follow`, from what the rows
of the trace say: the sweeper calls it each second, and so does everything that reads or changes requests, so that
nobody sees a stale one. The program does not write it: it does not know that it is cancelled, fails, or is queued.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from weavegen.errors import UsageError
from weavegen.store import models as m
from weavegen.store.models import RequestStatus, TraceStatus
from weavegen.trace.render import one_line

REQUESTS, CHANGES, TRACES = map(m.table, (m.Request, m.RequestChange, m.Trace))
S = RequestStatus

SUCCESSORS: dict[RequestStatus, frozenset[RequestStatus]] = {
    S.NOT_STARTED: frozenset({S.IN_PROGRESS, S.CANCELED}),
    S.IN_PROGRESS: frozenset({S.WAITING_FEEDBACK, S.SUCCEEDED, S.FAILED, S.CANCELED}),
    S.WAITING_FEEDBACK: frozenset({S.IN_PROGRESS, S.FAILED, S.CANCELED}),
    S.SUCCEEDED: frozenset(),
    S.FAILED: frozenset({S.NOT_STARTED}),
    S.CANCELED: frozenset({S.NOT_STARTED}),
}
"""Which status may follow which. What is over begins anew only by `weavegen retry` of its trace."""
OVER = frozenset({S.SUCCEEDED, S.FAILED, S.CANCELED})
LONGEST = 4_000
"""Characters of a reason and of a result that are kept."""


@dataclass(frozen=True)
class Asked:
    """What the user wants."""

    objective: str
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A request, as it stands."""

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
    """What a request's status is by its trace."""

    status: RequestStatus
    reason: str
    at: datetime.datetime | None = None
    """When it became so; None: now."""
    result: str | None = None


def insert(conn: sa.Connection, asked: Asked, user: str) -> int:
    """Write a request that no trace works on yet. Returns its id."""
    values = _values(asked)
    id = int(
        conn.execute(sa.insert(REQUESTS).values(asked_by=user, **values).returning(REQUESTS.c.id)).scalar_one()
    )
    _keep(conn, id, "created", S.NOT_STARTED, asked.objective, changed=values)
    return id


def attach(conn: sa.Connection, id: int, trace_id: int) -> None:
    """This trace works on it."""
    conn.execute(sa.update(REQUESTS).where(REQUESTS.c.id == id).values(trace_id=trace_id))


def attach_job(conn: sa.Connection, id: int, job_id: int) -> None:
    """The only trace of this job works on it."""
    attach(conn, id, int(conn.execute(sa.select(TRACES.c.id).where(TRACES.c.job_id == job_id)).scalar_one()))


def change(conn: sa.Connection, row: Row, asked: Asked, reason: str) -> None:
    """The user wants something else. The trace reads it at its next stage."""
    values = _values(asked)
    changed = {name: value for name, value in values.items() if value != getattr(row, name)}
    conn.execute(
        sa.update(REQUESTS).where(REQUESTS.c.id == row.id).values(**values, revision=REQUESTS.c.revision + 1)
    )
    _keep(conn, row.id, "updated", S(row.status), reason, changed=changed)


def become(
    conn: sa.Connection,
    row: Row,
    status: RequestStatus,
    reason: str,
    *,
    what: str = "status",
    at: datetime.datetime | None = None,
    result: str | None = None,
) -> None:
    """Give a request, which must be locked, another status. Raises ValueError where it may not follow its own."""
    if status not in SUCCESSORS[S(row.status)]:
        raise ValueError(f"request {row.id} is {row.status}: it can't become {status}")
    conn.execute(
        sa.update(REQUESTS)
        .where(REQUESTS.c.id == row.id)
        .values(
            status=status,
            question=reason[:LONGEST] if status is S.WAITING_FEEDBACK else None,
            result=None if result is None else result[:LONGEST],
        )
    )
    _keep(conn, row.id, what, status, reason, at=at)


# A request that is over is looked at again where its trace was retried.
BY_TRACE = """
  select r.id, t.id as trace, t.status as trace_status, t.started_at, t.finished_at, t.returned, t.failure,
    t.ended_because, s.request ->> 'question' as asked, s.ready_at
  from requests r
  join lateral (
    select * from traces where id = r.trace_id or retry_of = r.trace_id order by id desc limit 1
  ) t on true
  left join lateral (
    select request, ready_at from steps
    where trace_id = t.id and kind = 'await' and status in ('ready', 'running') order by id limit 1
  ) s on true
"""
DIFFERS = """
  case
    when t.id <> r.trace_id then true
    when r.status = 'NOT_STARTED' then t.status <> 'queued'
    when r.status = 'IN_PROGRESS' then t.status <> 'running' or s.ready_at is not null
    when r.status = 'WAITING_FEEDBACK' then
      t.status <> 'running' or s.ready_at is null or left(s.request ->> 'question', 4000) <> r.question
    else false
  end
"""
# Either part has an index, so that a second's sweep does not look at all requests that there ever were.
LIVING = """
  r.id in (
    select id from requests where status in ('NOT_STARTED', 'IN_PROGRESS', 'WAITING_FEEDBACK')
    union
    select id from requests
    where status in ('FAILED', 'CANCELED')
      and trace_id in (select retry_of from traces where retry_of is not null)
  )
"""
TO_FOLLOW = sa.text(
    f"{BY_TRACE} where {LIVING} and {DIFFERS} and (r.id = :id or :id is null) order by r.id for update of r"
)


def follow(conn: sa.Connection, id: int | None = None) -> int:
    """Give requests the status that their traces say; `id`: only this one. Returns how many changed.

    Steps on the way that nobody was there to see are written, too, with the times at which they happened.
    """
    rows = conn.execute(TO_FOLLOW.bindparams(sa.bindparam("id", type_=sa.BigInteger)), {"id": id}).all()
    for found in rows:
        row = load(conn, found.id)
        if found.trace != row.trace_id:
            attach(conn, row.id, found.trace)
            become(conn, row, S.NOT_STARTED, f"tried again, as trace {found.trace}")
            row = load(conn, found.id)
        stands = standing(
            found.trace,
            found.trace_status,
            question=found.asked,
            asked_at=found.ready_at,
            started_at=found.started_at,
            finished_at=found.finished_at,
            returned=found.returned,
            failure=found.failure,
            because=found.ended_because,
        )
        if stands.status == row.status != S.WAITING_FEEDBACK:
            continue
        if stands.status not in SUCCESSORS[S(row.status)]:
            started = row.status == S.NOT_STARTED
            reason = f"trace {found.trace} works on it" if started else "it waits no longer"
            become(conn, row, S.IN_PROGRESS, reason, at=found.started_at if started else None)
            row = load(conn, found.id)
        become(conn, row, stands.status, stands.reason, at=stands.at, result=stands.result)
    return len(rows)


def standing(
    trace: int,
    status: str,
    *,
    question: str | None = None,
    asked_at: datetime.datetime | None = None,
    started_at: datetime.datetime | None = None,
    finished_at: datetime.datetime | None = None,
    returned: Any = None,
    failure: str | None = None,
    because: str | None = None,
) -> Standing:
    """What a trace says about its request."""
    if status == TraceStatus.QUEUED:
        return Standing(S.NOT_STARTED, f"trace {trace} is queued")
    if status == TraceStatus.RUNNING:
        if asked_at is not None:
            return Standing(S.WAITING_FEEDBACK, question or "It asks, without words.", asked_at)
        return Standing(S.IN_PROGRESS, f"trace {trace} works on it", started_at)
    if status == TraceStatus.CANCELLED:
        return Standing(S.CANCELED, f"trace {trace} was cancelled", finished_at)
    if status == TraceStatus.FAILED:
        return Standing(S.FAILED, failure or f"trace {trace} failed", finished_at)
    returned = returned if isinstance(returned, dict) else {}
    result = returned.get("result")
    result = result if isinstance(result, str) else None
    if returned.get("success") is True:
        return Standing(S.SUCCEEDED, result or "done", finished_at, result)
    error = returned.get("error") or result
    why = str(error) if error else f"it ended before it was done: {because or 'no reason is recorded'}"
    return Standing(S.FAILED, why, finished_at, result)


READ = (
    "select r.*, t.job_id from requests r left join traces t on t.id = r.trace_id "
    "where (r.id = :id or :id is null) and (r.status = any(:statuses) or :statuses is null) "
    "and (r.asked_by = :user or :user is null) order by r.id"
)


def rows(
    conn: sa.Connection, *, id: int | None = None, statuses: Sequence[str] | None = None, user: str | None = None
) -> list[Row]:
    """Requests, by id."""
    query = sa.text(READ).bindparams(
        sa.bindparam("id", type_=sa.BigInteger),
        sa.bindparam("statuses", type_=sa.ARRAY(sa.Text)),
        sa.bindparam("user", type_=sa.Text),
    )
    found = conn.execute(query, {"id": id, "statuses": None if statuses is None else list(statuses), "user": user})
    return [Row(**{name: getattr(row, name) for name in Row.__dataclass_fields__}) for row in found]


def load(conn: sa.Connection, id: int) -> Row:
    """One request. Raises UsageError if there is no such one."""
    for row in rows(conn, id=id):
        return row
    raise UsageError(f"there is no request {id}: `weavegen request list` lists them")


def hold_open(conn: sa.Connection, id: int) -> Row:
    """One request, as its trace has it now, locked until the transaction ends. Raises UsageError if it is over."""
    conn.execute(sa.select(REQUESTS.c.id).where(REQUESTS.c.id == id).with_for_update())
    follow(conn, id)
    row = load(conn, id)
    if S(row.status) in OVER:
        raise UsageError(f"request {id} is over, it is {row.status}: make another with `weavegen request create`")
    return row


def changes(conn: sa.Connection, id: int) -> list[Change]:
    """All that happened to a request, in order."""
    columns = [CHANGES.c[name] for name in Change.__dataclass_fields__]
    found = conn.execute(sa.select(*columns).where(CHANGES.c.request_id == id).order_by(CHANGES.c.id))
    return [Change(*row) for row in found]


PAST = sa.text(
    """
    select r.id as number, r.objective, r.requirements, r.constraints, r.status, r.result,
      (select reason from request_changes where request_id = r.id order by id desc limit 1) as reason,
      array(
        select distinct t.name from tool_uses u
        join tool_versions v on v.id = u.tool_version_id join tools t on t.id = v.tool_id
        where u.trace_id = r.trace_id order by 1
      ) as tools
    from requests r where r.id is distinct from :other order by r.id desc limit 2000
    """
).bindparams(sa.bindparam("other", type_=sa.BigInteger))


@dataclass(frozen=True)
class Past:
    """Another request, and what came of it."""

    number: int
    objective: str
    requirements: list[str]
    constraints: list[str]
    status: str
    result: str | None
    reason: str
    """Of its last change."""
    tools: list[str]
    """Of the library, that were called for it."""


def past(conn: sa.Connection, other_than: int | None) -> list[Past]:
    """The newest requests other than this one, newest first."""
    return [Past(**row._mapping) for row in conn.execute(PAST, {"other": other_than})]


def sayings(conn: sa.Connection, user: str, other_than: int | None) -> list[str]:
    """What a user has said in requests other than this one: constraints, answers, reasons. The newest first."""
    query = sa.text(
        """
        select text from (
          select r.id, 0 as n, c.text from requests r cross join jsonb_array_elements_text(r.constraints) c(text)
          where r.asked_by = :user
          union all
          select r.id, c.id, c.reason from requests r join request_changes c on c.request_id = r.id
          where r.asked_by = :user and c.what in ('answered', 'updated', 'canceled')
        ) said where id is distinct from :other group by id, n, text order by id desc, n limit 2000
        """
    ).bindparams(sa.bindparam("other", type_=sa.BigInteger))
    return list(dict.fromkeys(conn.execute(query, {"user": user, "other": other_than}).scalars()))


def _values(asked: Asked) -> dict[str, Any]:
    return {
        "objective": asked.objective,
        "requirements": list(asked.requirements),
        "constraints": list(asked.constraints),
    }


def _keep(
    conn: sa.Connection,
    id: int,
    what: str,
    status: RequestStatus,
    reason: str,
    *,
    at: datetime.datetime | None = None,
    changed: dict[str, Any] | None = None,
) -> None:
    values = {
        "request_id": id,
        "at": sa.func.clock_timestamp() if at is None else at,
        "what": what,
        "status": status,
        "reason": one_line(reason)[:LONGEST],
        "changed": changed,
    }
    conn.execute(sa.insert(CHANGES).values(values))
