"""Annotations by people: their forms, and the queue of blocks that are most worth reviewing."""

import time
from typing import Any
from urllib.parse import quote, unquote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from weavegen import config
from weavegen.database import Database
from weavegen.errors import UsageError
from weavegen.store import annotations, reports
from weavegen.viewer import traces
from weavegen.viewer.responses import form, page, query_number, whole_number

MAX_FORM_CHARS = 8_000
COOKIE = "annotator"
COOKIE_SECONDS = 365 * 86_400
ITEMS_PER_PAGE = 20


def annotator(request: Request) -> str:
    """Who annotates in this browser: the name in its cookie, else the user whose viewer this is."""
    try:
        return config.person(unquote(request.cookies.get(COOKIE, "")), "the cookie")
    except UsageError:
        return config.load().user


class Annotations:
    """Reads and writes annotations. `writer`: None leaves the pages without forms."""

    def __init__(self, reader: Database, writer: Database | None) -> None:
        self.reader, self.writer = reader, writer

    def me(self, request: Request) -> str | None:
        """Who annotates. None if this viewer is read-only."""
        return None if self.writer is None else annotator(request)

    async def post(self, request: Request) -> Response:
        """Saves an annotation, and shows the annotated item. ?part=1: returns only the item's annotations, as HTML."""
        values = await form(request, MAX_FORM_CHARS)
        numbers = {name: whole_number(values[name]) for name in ("trace", "index", "candidate") if name in values}
        if "trace" not in numbers:
            raise UsageError("an annotation needs a trace")
        place = annotations.Place(**numbers)
        found = await run_in_threadpool(self.save, place, annotator(request), values)
        if request.query_params.get("part") == "1":
            return page("annotation.html", place=place, annotations=found, me=self.me(request))
        block = "" if place.index is None else f"/blocks/{place.index}"
        rest = "" if place.candidate is None or not block else f"/candidates#c{place.candidate}"
        return RedirectResponse(f"/traces/{place.trace}{block}{rest}", 303)

    def save(self, place: annotations.Place, author: str, values: dict[str, str]) -> list[dict[str, Any]]:
        """Save an annotation. Returns all annotations of the same item. Raises UsageError."""
        if self.writer is None:
            raise UsageError("this viewer is read-only: open a viewer on the machine of the installation")
        texts = {name: values.get(name, "").replace("\x00", "").strip() for name in ("verdict", "labels", "note")}
        labels = [label.strip() for label in texts.pop("labels").split(",")]
        with self.writer.begin() as conn:
            about = annotations.save(conn, place, author, labels=labels, **texts)
            return traces.rows(conn, "annotations_about", **about)

    async def name(self, request: Request) -> Response:
        """Keeps the annotator's name in a cookie of the browser, and shows the same page of the queue again."""
        values = await form(request, MAX_FORM_CHARS)
        name = config.person(values.get("name", "").strip(), "the name")
        place = [(field, whole_number(values[field])) for field in ("job", "page", "since") if field in values]
        response = RedirectResponse(f"/review?{urlencode(place)}", 303)
        response.set_cookie(COOKIE, quote(name), COOKIE_SECONDS, httponly=True, samesite="strict")
        return response

    def review(self, request: Request) -> Response:
        """Blocks of a job that are most worth reviewing. Those that the person has not annotated come first."""
        job_id, number = query_number(request, "job"), query_number(request, "page") or 0
        me, since = annotator(request), query_number(request, "since") or int(1000 * time.time())
        with self.reader.connect() as conn:
            jobs = traces.rows(conn, "jobs_to_choose", job=job_id, limit=reports.JOBS)
            if job_id is None and jobs:
                job_id = jobs[0]["id"]
            part = {"limit": ITEMS_PER_PAGE + 1, "offset": number * ITEMS_PER_PAGE, "since": since}
            items = traces.rows(conn, "review", job=job_id, me=me, **part)
        about = {"job_id": job_id, "page": number, "since": since, "more": len(items) > ITEMS_PER_PAGE}
        return page("review.html", jobs=jobs, items=items[:ITEMS_PER_PAGE], me=self.me(request), **about)
