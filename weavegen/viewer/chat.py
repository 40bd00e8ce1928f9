"""The chat box of a trace."""

from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from weavegen.database import Database
from weavegen.errors import UsageError, required
from weavegen.store import messages
from weavegen.trace.render import clean
from weavegen.viewer import traces
from weavegen.viewer.responses import form, page, path_number

MAX_MESSAGE_CHARS = 8_000


class Chat:
    """The channels of traces."""

    def __init__(self, reader: Database, writer: Database | None) -> None:
        self.reader, self.writer = reader, writer
        """`writer`: None disables the chat box."""

    def page(self, request: Request) -> Response:
        """The messages of a channel, and the box to write one."""
        with self.reader.connect() as conn:
            trace = traces.trace(conn, path_number(request, "trace"))
            over = messages.end_reason(conn, trace["id"])
            channels = messages.channels(conn, trace["id"])
            name = request.query_params.get("channel") or next(iter(channels), "")
            said = messages.since(conn, channels[name], 0) if name in channels else []
        values = {"trace": trace, "channels": list(channels), "channel": name, "messages": said, "over": over}
        return page("chat.html", open=self.writer is not None and over is None and name in channels, **values)

    async def post(self, request: Request) -> Response:
        """Adds the message in the form to its channel."""
        trace_id, values = path_number(request, "trace"), await form(request, MAX_MESSAGE_CHARS)
        if "channel" not in values or "text" not in values:
            raise UsageError("a message needs a channel and a text")
        channel, text = values["channel"], clean(values["text"]).strip()
        await run_in_threadpool(self.add, trace_id, channel, text)
        if request.headers.get("accept") == "application/json":
            return Response(status_code=204)
        return RedirectResponse(f"/traces/{trace_id}/chat?{urlencode({'channel': channel})}", 303)

    def add(self, trace_id: int, channel: str, text: str) -> None:
        """Add a message. Raises UsageError if it has a wrong length, or the trace does not take messages."""
        if self.writer is None:
            raise UsageError("this viewer is read-only: use `weavegen chat`")
        if not 0 < len(text) <= MAX_MESSAGE_CHARS:
            raise UsageError(f"a message has 1 to {MAX_MESSAGE_CHARS} characters")
        with self.writer.begin() as conn:
            if (reason := messages.end_reason(conn, trace_id)) is not None:
                raise UsageError(f"trace {trace_id} is over: {reason}")
            known = messages.channels(conn, trace_id)
            number = required(known.get(channel), f"trace {trace_id} has no channel {channel!r:.50}")
            messages.add(conn, number, text, author="person")
