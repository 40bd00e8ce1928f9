"""The pages of requests to the toolsmith: enter one, watch it, answer its question, cancel it."""

from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from weavegen.database import Database
from weavegen.engine import tool_requests
from weavegen.errors import UsageError
from weavegen.store import requests as store
from weavegen.store.states import RequestStatus
from weavegen.viewer import traces
from weavegen.viewer.responses import form, page, path_number

MAX_FORM_CHARS = 3 * tool_requests.MAX_TEXT_CHARS


class ToolRequests:
    """Requests, and what people do with them. `writable`: False leaves the pages without forms."""

    def __init__(self, reader: Database, *, writable: bool) -> None:
        self.reader, self.writable = reader, writable

    def list(self, request: Request) -> Response:
        """All requests, the newest first, and the form for another one."""
        with self.reader.connect() as conn:
            rows = store.rows(conn)[::-1]
            simulated = traces.simulated_jobs(conn, {row.job_id for row in rows if row.job_id is not None})
        return page("requests.html", requests=rows, simulated=simulated, open=self.writable)

    def show(self, request: Request) -> Response:
        """A request with every change. The page reloads itself while the agent works on it, except with ?cancel=1."""
        number = path_number(request, "number")
        with self.reader.connect() as conn:
            row, changes = store.load(conn, number), store.changes(conn, number)
            trace = {"model": None} if row.trace_id is None else traces.trace(conn, row.trace_id)
        state = {"over": row.status in store.OVER, "asks": row.status == RequestStatus.WAITING_FEEDBACK}
        cancel = request.query_params.get("cancel") == "1"
        values = {"changes": changes, "trace": trace, "open": self.writable, "cancel": cancel}
        return page("request.html", request=row, **values, **state)

    async def create(self, request: Request) -> Response:
        """Makes the request in the form. Each line of a list is one requirement or constraint."""
        values = await form(request, MAX_FORM_CHARS)
        lists: dict[str, Any] = {name: lines(values.get(name, "")) for name in ("requirements", "constraints")}
        return await self.done(lambda: tool_requests.create(values.get("objective", ""), **lists))

    async def change(self, request: Request) -> Response:
        """Answers the request's question, or cancels the request, depending on the pressed button."""
        number, values = path_number(request, "number"), await form(request, MAX_FORM_CHARS)
        changes = {"answer": tool_requests.answer, "cancel": tool_requests.cancel}
        if values.get("do") not in changes:
            raise UsageError(f"a change is one of {', '.join(changes)}")
        return await self.done(lambda: changes[values["do"]](number, values.get("text", "")).id)

    async def done(self, work: Callable[[], int]) -> Response:
        """Do the work in a thread, then show the request whose number it returns."""
        if not self.writable:
            raise UsageError("this viewer is read-only: use `weavegen request`")
        return RedirectResponse(f"/requests/{await run_in_threadpool(work)}", 303)


def lines(text: str) -> list[str]:
    """The lines that are not blank."""
    return [line.strip() for line in text.splitlines() if line.strip()]
