"""The viewer's pages. Reads by the read-only role; only the chat box writes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlencode

import jinja2
import msgspec
import sqlalchemy as sa
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from weavegen import config as configuration
from weavegen.errors import UsageError
from weavegen.services import model_server
from weavegen.store import messages
from weavegen.viewer import candidates, database, jobs, live, pages, plots, ticks, traces
from weavegen.viewer.guard import LOCAL, Guard

STATUSES = ("queued", "running", "ended", "failed", "cancelled")
LONGEST_MESSAGE = 8_000
"""Characters that the chat box takes at a time."""
LONGEST_FORM = 12 * LONGEST_MESSAGE + 1_000
"""Bytes of it, as a form encodes it."""
HITS = 30
"""Of a search."""
MOST = 200
"""Blocks in one answer at most."""
FRESH = {"cache-control": "no-store"}
"""What is shown changes all the time."""


class Viewer:
    """The pages over one database."""

    def __init__(self, reader: sa.Engine, writer: sa.Engine | None) -> None:
        self.reader, self.writer = reader, writer
        """`writer`: None where the chat box is closed."""
        self.sessions = reader.execution_options(isolation_level="READ COMMITTED")
        """The reader, with transactions."""
        self.scraping = asyncio.Lock()
        self.templates: jinja2.Environment = pages.environment()

    # ------------------------------------------------------------------------------------------ pages

    def home(self, request: Request) -> Response:
        with self.reader.connect() as conn:
            return self.page("jobs.html", jobs=jobs.jobs(conn))

    def job(self, request: Request) -> Response:
        job_id = whole(request.path_params["job"])
        status = request.query_params.get("status")
        status = status if status in STATUSES else None
        page = whole(request.query_params.get("page", "0"))
        with self.reader.connect() as conn:
            [job] = jobs.jobs(conn, job_id)
            rows = jobs.traces(conn, job_id, status, page)
            more = len(rows) > jobs.PAGE
            return self.page(
                "job.html",
                job=job,
                about=jobs.settings(conn, job_id),
                traces=rows[: jobs.PAGE],
                status=status,
                page=page,
                more=more,
            )

    def trace(self, request: Request) -> Response:
        """Also the deep link to a block: then the piece that holds it is on the page from the beginning."""
        trace_id = whole(request.path_params["trace"])
        at = whole(request.path_params.get("index", 0))
        with self.reader.connect() as conn:
            trace = traces.trace(conn, trace_id)
            layout = traces.pieces(conn, trace_id)
            if "index" in request.path_params and at >= trace["blocks"]:
                raise UsageError(f"trace {trace_id} has no block {at}: it has {trace['blocks']} so far")
            opened = at // traces.PIECE
            first = opened * traces.PIECE
            blocks = traces.blocks(conn, trace_id, first, first + traces.PIECE)
            return self.page(
                "trace.html",
                trace=trace,
                layout=layout,
                piece=traces.PIECE,
                opened=opened,
                blocks=blocks,
                at=at if "index" in request.path_params else None,
                mark=f"{trace['restarts']}:{trace['blocks']}:{trace['ticks']}:{trace['status']}",
            )

    def blocks(self, request: Request) -> Response:
        """Blocks as a piece of a page."""
        trace_id = whole(request.path_params["trace"])
        first = whole(request.query_params.get("first", "0"))
        end = min(whole(request.query_params.get("end", "0")), first + MOST)
        with self.reader.connect() as conn:
            traces.mark(conn, trace_id)
            found = traces.blocks(conn, trace_id, first, end)
            return self.page("blocks.html", trace_id=trace_id, blocks=found)

    def candidates(self, request: Request) -> Response:
        """`?diff=1`: each that lost is shown by what it has otherwise than the block."""
        trace_id, index = whole(request.path_params["trace"]), whole(request.path_params["index"])
        with self.reader.connect() as conn:
            trace = traces.trace(conn, trace_id)
            choice = candidates.choice(conn, trace_id, index)
        differences = choice.differences() if request.query_params.get("diff") == "1" else None
        return self.page("candidates.html", trace=trace, choice=choice, differences=differences)

    def candidate(self, request: Request) -> Response:
        """Where the candidate of a row of the database is shown."""
        candidate_id = whole(request.path_params["candidate"])
        with self.reader.connect() as conn:
            trace_id, index = candidates.place(conn, candidate_id)
        return RedirectResponse(f"/traces/{trace_id}/blocks/{index}/candidates#c{candidate_id}", 303)

    def ticks(self, request: Request) -> Response:
        trace_id = whole(request.path_params["trace"])
        with self.reader.connect() as conn:
            trace = traces.trace(conn, trace_id)
            return self.page("ticks.html", trace=trace, ticks=ticks.ticks(conn, trace_id))

    def tick(self, request: Request) -> Response:
        trace_id, tick = whole(request.path_params["trace"]), whole(request.path_params["tick"])
        with self.reader.connect() as conn:
            trace = traces.trace(conn, trace_id)
            known = next((one for one in ticks.ticks(conn, trace_id) if one["number"] == tick), None)
            if known is None:
                raise UsageError(f"trace {trace_id} has no tick {tick}")
            return self.page("tick.html", trace=trace, tick=known, timeline=ticks.timeline(conn, trace_id, tick))

    def problems(self, request: Request) -> Response:
        trace_id = whole(request.path_params["trace"])
        with self.reader.connect() as conn:
            trace = traces.trace(conn, trace_id)
            problems = traces.problem_map(conn, trace_id)
            return self.page("problems.html", trace=trace, problems=problems)

    def about(self, request: Request) -> Response:
        trace_id = whole(request.path_params["trace"])
        with self.reader.connect() as conn:
            trace = traces.trace(conn, trace_id)
            return self.page("about.html", trace=trace, history=traces.history(conn, trace_id))

    def search(self, request: Request) -> Response:
        from weavegen.search.documents import RETRIEVABLE
        from weavegen.search.scope import Scope
        from weavegen.search.user_search import search_texts

        asked = {name: request.query_params.get(name, "").strip() for name in ("q", "type", "job", "trace")}
        found, problem, simulated = [], None, set[int]()
        if asked["q"]:
            try:
                trace_id = whole(asked["trace"]) if asked["trace"] else None
                job_id = whole(asked["job"]) if asked["job"] and trace_id is None else None
                scope = Scope(trace_id=trace_id, job_id=job_id, examples=trace_id is None and job_id is None)
                with self.reader.connect() as conn:
                    found = search_texts(conn, asked["q"], scope, type=asked["type"] or None, top_k=HITS)
                    simulated = jobs.simulated(conn, {one.job for one in found if one.job is not None})
            except UsageError as error:
                problem = str(error)
        types = list(map(str, RETRIEVABLE))
        return self.page(
            "search.html", asked=asked, found=found, simulated=simulated, problem=problem, types=types, most=HITS
        )

    def figures(self, request: Request) -> Response:
        job_id = whole(request.query_params["job"]) if request.query_params.get("job") else None
        with self.reader.connect() as conn:
            calibration = plots.calibration(conn, job_id)
            rewards = plots.rewards(conn, job_id)
            ages = {name: plots.freshness(conn, name) for name in ("evaluator_calibration", "tick_stats")}
            known = jobs.jobs(conn)
        return self.page(
            "figures.html",
            job_id=job_id,
            jobs=known,
            calibration=calibration,
            rewards=rewards,
            ages=ages,
        )

    def report(self, request: Request) -> Response:
        """What `weavegen report` writes, made anew; as a file where the address ends in .html.

        The role that reads can't refresh views, so it is as of their last refresh, and says so.
        """
        from weavegen.viewer.report import page, read

        job_id = whole(request.path_params["job"])
        with self.reader.connect() as conn:
            jobs.jobs(conn, job_id)  # so that what fails from here on is no missing job
            try:
                simulation = model_server.simulated(configuration.load())
                found = read.read(conn, job_id, seconds=database.SECONDS, simulation=simulation)
            except UsageError as error:
                problem = f"{error}. In a terminal it may take longer: weavegen report {job_id}"
                return self.problem("No report", problem, 503)
        headers = {"content-security-policy": f"{page.policy()}; frame-ancestors 'none'", **FRESH}
        if request.url.path.endswith(".html"):
            headers |= attachment(f"report-{job_id}.html")
        return HTMLResponse(page.html(found).encode(errors="replace"), headers=headers)

    # ------------------------------------------------------------------------------------------ for machines

    async def metrics(self, request: Request) -> Response:
        """For Prometheus. One reading at a time, so that nobody can have the servers asked many times at once."""
        from weavegen.monitoring import metrics

        async with self.scraping:
            status, text = await run_in_threadpool(metrics.answer, self.sessions)
        return PlainTextResponse(text, status, media_type=metrics.CONTENT_TYPE, headers=FRESH)

    # ------------------------------------------------------------------------------------------ downloads

    def as_python(self, request: Request) -> Response:
        trace_id = whole(request.path_params["trace"])
        self.known(trace_id)

        def texts() -> Iterator[str]:
            with self.reader.connect() as conn:
                yield from traces.rendered(conn, trace_id)

        return download(texts(), "text/x-python; charset=utf-8", f"trace-{trace_id}.py")

    def as_json(self, request: Request) -> Response:
        """A list of blocks, as `weavegen show --json` prints them."""
        from weavegen.trace.render import parse_trace

        trace_id = whole(request.path_params["trace"])
        self.known(trace_id)

        def texts() -> Iterator[bytes]:
            mark = b"[\n"
            with self.reader.connect() as conn:
                for text in traces.rendered(conn, trace_id):
                    for block in parse_trace(text):
                        yield mark + msgspec.json.encode(block)
                        mark = b",\n"
            yield b"[]\n" if mark == b"[\n" else b"\n]\n"

        return download(texts(), "application/json", f"trace-{trace_id}.json")

    def known(self, trace_id: int) -> None:
        """Raises UsageError if there is no such trace."""
        with self.reader.connect() as conn:
            traces.mark(conn, trace_id)

    # ------------------------------------------------------------------------------------------ chat

    def chat(self, request: Request) -> Response:
        trace_id = whole(request.path_params["trace"])
        with self.reader.connect() as conn:
            trace = traces.trace(conn, trace_id)
            over = messages.over(conn, trace_id)
            known = messages.channels(conn, trace_id)
            name = request.query_params.get("channel") or next(iter(known), "")
            said = messages.since(conn, known[name], 0) if name in known else []
        return self.page(
            "chat.html",
            trace=trace,
            channels=list(known),
            channel=name,
            said=said,
            over=over,
            open=self.writer is not None and over is None and name in known,
        )

    async def say(self, request: Request) -> Response:
        """What was typed into the chat box."""
        trace_id = whole(request.path_params["trace"])
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LONGEST_FORM:
                raise UsageError(f"a message has 1 to {LONGEST_MESSAGE} characters")
        form = dict(parse_qsl(body.decode(errors="replace")))
        if "channel" not in form or "text" not in form:
            raise UsageError("a message needs a channel and a text")
        name = form["channel"]
        await run_in_threadpool(self.put, trace_id, name, form["text"].replace("\x00", "").strip())
        if request.headers.get("accept") == "application/json":
            return Response(status_code=204)
        return RedirectResponse(f"/traces/{trace_id}/chat?{urlencode({'channel': name})}", 303)

    def put(self, trace_id: int, name: str, text: str) -> None:
        """Put a message into a channel. Raises UsageError where that is not possible."""
        if self.writer is None:
            raise UsageError("this viewer only reads: use `weavegen chat`")
        if not 0 < len(text) <= LONGEST_MESSAGE:
            raise UsageError(f"a message has 1 to {LONGEST_MESSAGE} characters")
        with self.writer.begin() as conn:
            if (over := messages.over(conn, trace_id)) is not None:
                raise UsageError(f"trace {trace_id} is over: {over}")
            channel = messages.channels(conn, trace_id).get(name)
            if channel is None:
                raise UsageError(f"trace {trace_id} has no channel {name!r:.50}")
            messages.add(conn, channel, text, author="person")

    # ------------------------------------------------------------------------------------------ events

    async def job_events(self, request: Request) -> Response:
        wanted = request.query_params.get("job")
        template = self.templates.get_template("job_rows.html" if wanted is None else "job_card.html")

        def draw(views: list[jobs.JobView]) -> str:
            return template.render(jobs=views) if wanted is None else template.render(job=views[0])

        return live.stream(live.job_events(request, self.reader, None if wanted is None else whole(wanted), draw))

    async def trace_events(self, request: Request) -> Response:
        known = request.headers.get("last-event-id") or request.query_params.get("known", "")
        return live.stream(live.trace_events(request, self.reader, whole(request.path_params["trace"]), known))

    async def chat_events(self, request: Request) -> Response:
        known = request.headers.get("last-event-id") or request.query_params.get("known", "0")
        template = self.templates.get_template("said.html")
        events = live.chat_events(
            request,
            self.reader,
            whole(request.path_params["trace"]),
            request.query_params.get("channel", ""),
            known,
            lambda one: template.render(one=one),
        )
        return live.stream(events)

    # ------------------------------------------------------------------------------------------ all of them

    def page(self, name: str, status: int = 200, /, **values: Any) -> Response:
        text = self.templates.get_template(name).render(**values)
        # Lone surrogates can't be encoded; nothing in the database has one, an address may.
        return HTMLResponse(text.encode(errors="replace"), status, headers=FRESH)

    def problem(self, title: str, problem: str, status: int) -> Response:
        return self.page("problem.html", status, title=title, problem=problem)

    async def wrong(self, request: Request, error: Exception) -> Response:
        """What is asked for is not there, or can't be done."""
        return self.problem("Not found", str(error), 404 if request.method == "GET" else 400)

    async def no_database(self, request: Request, error: Exception) -> Response:
        return self.problem("No answer", live.NO_DATABASE, 503)

    def routes(self) -> list[Route | Mount]:
        trace = "/traces/{trace:int}"
        shown: list[tuple[str, Callable[..., Any]]] = [
            ("/", self.home),
            ("/jobs/{job:int}", self.job),
            ("/jobs/{job:int}/report", self.report),
            ("/jobs/{job:int}/report.html", self.report),
            ("/candidates/{candidate:int}", self.candidate),
            (trace, self.trace),
            (f"{trace}/blocks", self.blocks),
            (f"{trace}/blocks/{{index:int}}", self.trace),
            (f"{trace}/blocks/{{index:int}}/candidates", self.candidates),
            (f"{trace}/ticks", self.ticks),
            (f"{trace}/ticks/{{tick:int}}", self.tick),
            (f"{trace}/problems", self.problems),
            (f"{trace}/about", self.about),
            (f"{trace}/chat", self.chat),
            (f"{trace}.py", self.as_python),
            (f"{trace}.json", self.as_json),
            ("/search", self.search),
            ("/figures", self.figures),
            ("/metrics", self.metrics),
            ("/events/jobs", self.job_events),
            (f"/events{trace}", self.trace_events),
            (f"/events{trace}/chat", self.chat_events),
            ("/robots.txt", lambda request: PlainTextResponse("User-agent: *\nDisallow: /\n")),
        ]
        return [
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in shown),
            Route(f"{trace}/chat", self.say, methods=["POST"]),
            Mount("/static", StaticFiles(directory=pages.FOLDER / "static"), name="static"),
        ]


def whole(text: Any) -> int:
    """A number of an address. Raises UsageError on what no row can have."""
    try:
        number = int(text)
    except ValueError:
        raise UsageError(f"{str(text)!r:.40} is no number") from None
    if not 0 <= number < 2**62:
        raise UsageError(f"there is no number {number}")
    return number


def download(texts: Iterator[str] | Iterator[bytes], media_type: str, name: str) -> Response:
    return StreamingResponse(texts, media_type=media_type, headers=attachment(name))


def attachment(name: str) -> dict[str, str]:
    """Headers of what a browser keeps under a name."""
    return {"content-disposition": f'attachment; filename="{name}"'}


def make_app(reader: sa.Engine, writer: sa.Engine | None, hosts: frozenset[str] | None = LOCAL) -> Starlette:
    """The viewer. `hosts`: names under which it is served; None: any."""
    viewer = Viewer(reader, writer)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        reader.dispose()
        if writer is not None:
            writer.dispose()

    app = Starlette(
        routes=viewer.routes(),
        lifespan=lifespan,
        middleware=[
            Middleware(Guard, hosts=hosts),
            Middleware(GZipMiddleware, minimum_size=2_000, compresslevel=4),
        ],
        exception_handlers={UsageError: viewer.wrong, **dict.fromkeys(live.AWAY, viewer.no_database)},
    )
    app.state.closing = False
    return app
