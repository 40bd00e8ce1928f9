"""Server-sent events: what a page that is open is told while things change. Nothing is kept here: who comes back
says with Last-Event-ID what they know, and is told the rest."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import msgspec
import sqlalchemy as sa
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import StreamingResponse

from weavegen.errors import UsageError
from weavegen.monitoring.progress import Rates
from weavegen.store import messages
from weavegen.viewer import jobs, traces

EVERY = 0.4
"""Seconds between two looks at a trace: a block is seen within a second of its commit."""
JOBS_EVERY = 1.0
QUIET = 15.0
"""Seconds after which a comment is sent, so that nobody takes the connection for dead."""
AWAY = (sa.exc.DBAPIError, sa.exc.TimeoutError)
"""What is raised where the database is not there, is too slow, or all of its connections are in use."""
NO_DATABASE = "The database does not answer, or took too long. Is it running? `weavegen up` starts it."


def stream(events: AsyncIterator[str]) -> StreamingResponse:
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def event(name: str, value: Any, id: str | None = None) -> str:
    """One event; its data is JSON, which has no line ends."""
    data = msgspec.json.encode(value).decode()
    return (f"id: {id}\n" if id is not None else "") + f"event: {name}\ndata: {data}\n\n"


async def changes(
    request: Request, read: Callable[[], tuple[str, list[str], bool]], every: float, known: str
) -> AsyncIterator[str]:
    """The events of `read` whenever its key differs from the last one, until it says that all is over.

    A database that is not there for a while only delays them; `away` and `back` say so.
    """
    spoke, away = time.monotonic(), False
    yield "retry: 1000\n\n"
    while not (request.app.state.closing or await request.is_disconnected()):
        try:
            key, events, over = await run_in_threadpool(read)
        except UsageError as error:
            yield event("gone", str(error))
            return
        except AWAY:
            if not away:
                yield event("away", NO_DATABASE)
            key, events, over, away = known, [], False, True
        else:
            if away:
                yield event("back", None)
            away = False
        if key != known:
            known, spoke = key, time.monotonic()
            for one in events:
                yield one
        if over:
            yield event("over", key)
            return
        if time.monotonic() - spoke > QUIET:
            spoke = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(every)


def trace_events(request: Request, reader: sa.Engine, trace_id: int, known: str) -> AsyncIterator[str]:
    """How far a trace is, whenever it got further. `known`: RESTARTS:BLOCKS:TICKS:STATUS, as the ids say."""

    def read() -> tuple[str, list[str], bool]:
        with reader.connect() as conn:
            mark = traces.mark(conn, trace_id)
        key = f"{mark.restarts}:{mark.blocks}:{mark.ticks}:{mark.status}"
        return key, [event("mark", mark.__dict__, key)], mark.over

    return changes(request, read, EVERY, known)


def job_events(
    request: Request, reader: sa.Engine, job_id: int | None, draw: Callable[[list[jobs.JobView]], str]
) -> AsyncIterator[str]:
    """The jobs, or one, drawn anew whenever something changed."""
    rates = Rates()

    def read() -> tuple[str, list[str], bool]:
        with reader.connect() as conn:
            found = jobs.jobs(conn, job_id)
        views = []
        for view in found:
            blocks, tokens = rates.now(time.monotonic(), view.row) if view.row.open else (None, None)
            views.append(replace(view, blocks_now=blocks, tokens_now=tokens))
        text = draw(views)
        over = job_id is not None and not views[0].row.open
        return text, [event("jobs", text)], over

    return changes(request, read, JOBS_EVERY, "")


def chat_events(
    request: Request, reader: sa.Engine, trace_id: int, name: str, known: str, draw: Callable[[Any], str]
) -> AsyncIterator[str]:
    """What is said in a channel after message `known`, each with its number as the event's id."""
    seen = int(known) if known.isdigit() else 0

    def read() -> tuple[str, list[str], bool]:
        nonlocal seen
        with reader.connect() as conn:
            over = messages.over(conn, trace_id)  # first: what comes after this is shown at the next look
            channel = messages.channels(conn, trace_id).get(name)
            said = messages.since(conn, channel, seen) if channel is not None else []
        seen = max([seen, *(one.id for one in said)])
        return str(seen), [event("said", draw(one), str(one.id)) for one in said], over is not None

    return changes(request, read, EVERY, str(seen))
