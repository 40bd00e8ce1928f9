"""Server-sent events: they keep open pages up to date.

The server keeps no state. A browser that reconnects sends the last event's id, and receives what came after it.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import psycopg
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from weavegen import config as configuration
from weavegen.database import Database
from weavegen.errors import UsageError
from weavegen.monitoring.progress import Paced, Rates
from weavegen.services.faults import faults
from weavegen.store import messages, reports
from weavegen.text import bytes_text
from weavegen.viewer import traces
from weavegen.viewer.rendering import number, templates
from weavegen.viewer.responses import NO_STORE, path_number, query_number, whole_number

POLL_SECONDS = 0.4
"""Time between queries for a trace or a channel."""
JOBS_POLL_SECONDS = 1.0
"""The same for jobs; longer if a query takes long, because it sums over all traces of the jobs."""
KEEPALIVE_SECONDS = 15.0
"""Silence after which a comment is sent, so that proxies keep the connection."""
NO_DATABASE = "The database does not answer, or took too long. Is it running? `weavegen up` starts it."

Reading = tuple[str, list[str], bool]
"""A key that changes with the events, the events, and whether they are the last ones."""


class Events:
    """The event streams of one database."""

    def __init__(self, reader: Database) -> None:
        self.reader = reader

    async def jobs(self, request: Request) -> Response:
        """The list of jobs, or one job, as HTML whenever it has changed."""
        job_id = query_number(request, "job")
        template = templates().get_template("job_rows.html" if job_id is None else "job_card.html")
        rates = Rates()

        def read() -> Reading:
            with self.reader.connect() as conn:
                jobs = reports.jobs(conn, job_id)
                found = faults(conn, configuration.load())
            now = {job.id: rates.now(time.monotonic(), job) for job in jobs if job.open}
            more = len(jobs) == reports.JOBS
            html = template.render(jobs=jobs, job=jobs[0] if jobs else None, now=now, faults=found, more=more)
            return html, [event("jobs", html)], job_id is not None and not jobs[0].open

        return stream(changes(request, Paced(read, JOBS_POLL_SECONDS).get, "", JOBS_POLL_SECONDS))

    async def trace(self, request: Request) -> Response:
        """The state of a trace whenever it has changed."""
        trace_id = path_number(request, "trace")

        def read() -> Reading:
            with self.reader.connect() as conn:
                state = traces.state(conn, trace_id)
            texts = {"bytes": bytes_text(state["bytes"]), "reward": number(state["reward"], 2)}
            return state["key"], [event("state", state | texts, state["key"])], state["over"]

        return stream(changes(request, read, last_known(request)))

    async def chat(self, request: Request) -> Response:
        """The messages of a channel as HTML. The id of an event is the number of its message."""
        trace_id, name = path_number(request, "trace"), request.query_params.get("channel", "")
        template = templates().get_template("message.html")
        last = 0
        with contextlib.suppress(UsageError):
            last = whole_number(last_known(request))

        def read() -> Reading:
            nonlocal last
            with self.reader.connect() as conn:
                over = messages.end_reason(conn, trace_id)  # before the messages, so that none is missed
                channel = messages.channels(conn, trace_id).get(name)
                said = messages.since(conn, channel, last) if channel is not None else []
            last = max([last, *(message.id for message in said)])
            events = [event("message", template.render(message=message), str(message.id)) for message in said]
            return str(last), events, over is not None

        return stream(changes(request, read, str(last)))


async def changes(
    request: Request, read: Callable[[], Reading], known: str, seconds: float = POLL_SECONDS
) -> AsyncIterator[str]:
    """Events of `read` when its key changes, until the last. `away` and `back` tell whether the database answers."""
    sent, away = time.monotonic(), False
    yield "retry: 1000\n\n"
    while not (request.app.state.closing or await request.is_disconnected()):
        try:
            key, events, over = await run_in_threadpool(read)
        except UsageError as error:
            yield event("gone", str(error))
            return
        except psycopg.Error:
            if not away:
                yield event("away", NO_DATABASE)
            key, events, over, away = known, [], False, True
        else:
            if away:
                yield event("back", None)
            away = False
        if key != known:
            known, sent = key, time.monotonic()
            for text in events:
                yield text
        if over:
            yield event("over", key)
            return
        if time.monotonic() - sent > KEEPALIVE_SECONDS:
            sent = time.monotonic()
            yield ": keepalive\n\n"
        await asyncio.sleep(seconds)


def event(name: str, value: Any, id: str | None = None) -> str:
    """One event. Its data is JSON, which has no line ends."""
    data = msgspec.json.encode(value).decode()
    return (f"id: {id}\n" if id is not None else "") + f"event: {name}\ndata: {data}\n\n"


def last_known(request: Request) -> str:
    """The id of the last event that the browser has received, or what its page says."""
    return request.headers.get("last-event-id") or request.query_params.get("known", "")


def stream(events: AsyncIterator[str]) -> Response:
    return StreamingResponse(events, media_type="text/event-stream", headers={**NO_STORE, "x-accel-buffering": "no"})
