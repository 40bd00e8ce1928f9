"""The pages and downloads. Each reads the database with the read-only role."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse

from weavegen import config as configuration
from weavegen import sql
from weavegen.database import Connection, Database
from weavegen.errors import UsageError, required
from weavegen.services import model_server
from weavegen.services.faults import faults
from weavegen.store import reports
from weavegen.viewer import choices, figures, listing, traces
from weavegen.viewer.responses import NO_STORE, attachment, page, path_number, query_number, whole_number

JUMPS = ("error", "backtrack", "low", "divergence")
"""Kinds of blocks that next_block.sql finds."""
QUERY_SECONDS = 20.0
"""Time limit of a query."""
MAX_HITS = 30
BLOCKS_PER_PIECE = 25
"""Blocks that a page fetches together."""
MAX_BLOCKS = 200
"""Maximum number of blocks in a response."""


class Pages:
    """The pages of one database. A method is a page; app.py has their addresses."""

    def __init__(self, reader: Database, me: Callable[[Request], str | None] = lambda request: None) -> None:
        self.reader, self.me = reader, me
        """`me`: who annotates in a browser; None: nobody can."""
        self.scraping = asyncio.Lock()

    @contextlib.contextmanager
    def trace_of(self, request: Request) -> Iterator[tuple[Connection, dict[str, Any]]]:
        """A connection, and the trace in the path. Raises UsageError if there is no such trace."""
        with self.reader.connect() as conn:
            yield conn, traces.trace(conn, path_number(request, "trace"))

    def jobs(self, request: Request) -> Response:
        before = query_number(request, "before")
        with self.reader.connect() as conn:
            jobs, found = reports.jobs(conn, before=before), faults(conn, configuration.load())
        return page("jobs.html", jobs=jobs, now={}, faults=found, before=before, more=len(jobs) == reports.JOBS)

    def job(self, request: Request) -> Response:
        job_id, number = path_number(request, "job"), query_number(request, "page") or 0
        asked = listing.asked(request.query_params)
        with self.reader.connect() as conn:
            job = reports.jobs(conn, job_id)[0]
            rows, more = listing.rows(conn, job_id, asked, number)
            about, outcomes = (traces.rows(conn, query, job=job_id)[0] for query in ("job_settings", "outcomes"))
            age = max(reports.materialised(conn, "tick_stats, tick_sums").values(), default=None)
            found = faults(conn, configuration.load())
        table = {"traces": rows, "asked": asked, "link": partial(listing.address, asked), "page": number, "more": more}
        return page("job.html", job=job, now={}, about=about, outcomes=outcomes, age=age, faults=found, **table)

    def trace(self, request: Request) -> Response:
        """A trace at the block in the path, else at the first block that was written, after the bootstrap's tick."""
        with self.trace_of(request) as (conn, trace):
            at = path_number(request, "index") if "index" in request.path_params else None
            if at is not None and at >= trace["blocks"]:
                raise UsageError(f"trace {trace['id']} has no block {at}: it has {trace['blocks']} so far")
            start = at if at is not None else min(trace["first_written"], max(0, trace["blocks"] - 1))
            piece = BLOCKS_PER_PIECE
            layout = sql.run(conn, "viewer/pieces", trace=trace["id"], piece=piece).all()
            opened = start // piece
            blocks = traces.blocks(conn, trace["id"], opened * piece, (opened + 1) * piece)
        place = {"layout": layout, "piece": piece, "opened": opened, "at": at, "start": start, "jumps": JUMPS}
        return page("trace.html", trace=trace, trace_id=trace["id"], blocks=blocks, me=self.me(request), **place)

    def blocks(self, request: Request) -> Response:
        """Blocks without a page around them."""
        trace_id = path_number(request, "trace")
        first = query_number(request, "first") or 0
        end = min(query_number(request, "end") or 0, first + MAX_BLOCKS)
        with self.reader.connect() as conn:
            traces.state(conn, trace_id)
            blocks = traces.blocks(conn, trace_id, first, end)
        return page("blocks.html", trace_id=trace_id, blocks=blocks, me=self.me(request))

    def next(self, request: Request) -> Response:
        """The next block of a kind, or the previous one (`?back=1`): its index as JSON, or its page."""
        kind, after, back = (request.query_params.get(name, "") for name in ("kind", "after", "back"))
        if kind not in JUMPS:
            raise UsageError(f"there is no kind {kind!r:.40}: choose one of {', '.join(JUMPS)}")
        values = {"kind": kind, "after": whole_number(after) if after else -1, "back": back == "1"}
        with self.trace_of(request) as (conn, trace):
            index = sql.run(conn, "viewer/next_block", trace=trace["id"], **values).scalar_one_or_none()
        if request.headers.get("accept") == "application/json":
            return Response(msgspec.json.encode({"index": index}), media_type="application/json", headers=NO_STORE)
        index = required(index, f"trace {trace['id']} has no further block of the kind {kind}")
        return RedirectResponse(f"/traces/{trace['id']}/blocks/{index}", 303)

    def candidates(self, request: Request) -> Response:
        """The candidates of a block. `?diff=1`: rejected ones as differences from the block."""
        with self.trace_of(request) as (conn, trace):
            choice = choices.choice(conn, trace["id"], path_number(request, "index"))
        differences = choice.differences() if request.query_params.get("diff") == "1" else None
        return page("candidates.html", trace=trace, choice=choice, differences=differences, me=self.me(request))

    def prompt(self, request: Request) -> Response:
        """What the model read before it wrote a block."""
        from weavegen.exports.read_prompts import PromptReader

        index = path_number(request, "index")
        with self.trace_of(request) as (conn, trace):
            wrote = sql.run(conn, "viewer/step_of_block", trace=trace["id"], index=index).one_or_none()
            row = required(wrote, f"the model wrote no block {index} in trace {trace['id']}, so it read no prompt")
            reader = PromptReader(conn, row.trace_id)
            reader.load([row.step_id])
            read = required(reader.prompt(row.step_id), f"what the model read before block {index} was not recorded")
        return page("prompt.html", trace=trace, index=index, read=read)

    def candidate(self, request: Request) -> Response:
        """Redirects from candidates.id to the candidate on its page."""
        number = path_number(request, "candidate")
        with self.reader.connect() as conn:
            found = sql.run(conn, "viewer/place_of_id", id=number).one_or_none()
        row = required(found, f"there is no candidate {number}")
        return RedirectResponse(f"/traces/{row.trace_id}/blocks/{row.block_index}/candidates#c{number}", 303)

    def part(self, request: Request) -> Response:
        """The ticks, the problem map or the history of a trace, depending on the end of the path."""
        name = request.url.path.rpartition("/")[2]
        with self.trace_of(request) as (conn, trace):
            id = trace["id"]
            rows = traces.problem_map(conn, id) if name == "problems" else traces.rows(conn, name, trace=id)
            return page(f"{name}.html", trace=trace, rows=rows)

    def tick(self, request: Request) -> Response:
        number = path_number(request, "tick")
        with self.trace_of(request) as (conn, trace):
            ticks = {tick["number"]: tick for tick in traces.ticks(conn, trace["id"])}
            tick = required(ticks.get(number), f"trace {trace['id']} has no tick {number}")
            steps = traces.rows(conn, "steps_of_tick", trace=trace["id"], tick=number)
            return page("tick.html", trace=trace, tick=tick, steps=steps)

    def search(self, request: Request) -> Response:
        from weavegen.search.corpus_index import Scope
        from weavegen.search.documents import RETRIEVABLE
        from weavegen.search.user_search import search_texts

        asked = {name: request.query_params.get(name, "").strip() for name in ("q", "type", "job", "trace")}
        hits, bad, simulated = list[Any](), None, set[int]()
        if asked["q"]:
            try:
                trace_id = query_number(request, "trace")
                job_id = query_number(request, "job") if trace_id is None else None
                scope = Scope(trace_id=trace_id, job_id=job_id, examples=trace_id is None and job_id is None)
                with self.reader.connect() as conn:
                    hits = search_texts(conn, asked["q"], scope, type=asked["type"] or None, top_k=MAX_HITS)
                    simulated = traces.simulated_jobs(conn, {hit.job for hit in hits if hit.job is not None})
            except UsageError as error:
                bad = str(error)
        types = list(map(str, RETRIEVABLE))
        return page("search.html", asked=asked, hits=hits, simulated=simulated, problem=bad, types=types, most=MAX_HITS)

    def figures(self, request: Request) -> Response:
        job_id = query_number(request, "job")
        with self.reader.connect() as conn:
            return page(
                "figures.html",
                job_id=job_id,
                jobs=traces.rows(conn, "jobs_to_choose", job=job_id, limit=reports.JOBS),
                simulated=traces.simulated_jobs(conn, None if job_id is None else {job_id}),
                calibration=figures.calibration(conn, job_id),
                rewards=figures.rewards(conn, job_id),
                ages=reports.materialised(conn, "evaluator_calibration, tick_stats"),
            )

    def report(self, request: Request) -> Response:
        """The page that `weavegen report` writes; as a download if the address ends in .html.

        The read-only role can't refresh materialised views. The page says when they were refreshed.
        """
        from weavegen.viewer import report, report_page
        from weavegen.viewer.rendering import saved_policy

        job_id = path_number(request, "job")
        with self.reader.connect() as conn:
            reports.jobs(conn, job_id)  # raises UsageError, with the status 404, if there is no such job
            try:
                simulation = model_server.simulated(configuration.load())
                data = report.read(conn, job_id, seconds=QUERY_SECONDS, simulation=simulation)
            except UsageError as error:
                hint = f"{error}. The command has a longer time limit: weavegen report {job_id}"
                return page("problem.html", 503, title="No report", problem=hint)
        headers = {"content-security-policy": f"{saved_policy()}; frame-ancestors 'none'", **NO_STORE}
        if request.url.path.endswith(".html"):
            headers |= attachment(f"report-{job_id}.html")
        return HTMLResponse(report_page.html(data).encode(errors="replace"), headers=headers)

    async def metrics(self, request: Request) -> Response:
        """Metrics for Prometheus. One scrape at a time, because each asks all model servers."""
        from weavegen.monitoring import metrics

        async with self.scraping:
            status, text = await run_in_threadpool(metrics.answer, self.reader.with_autocommit(False))
        return PlainTextResponse(text, status, media_type=metrics.CONTENT_TYPE, headers=NO_STORE)

    def download(self, request: Request) -> Response:
        """A trace as a file that is sent as it is read: as `weavegen show` prints it, or as `show --json` does."""
        from weavegen.exports import text

        trace_id, suffix = path_number(request, "trace"), request.url.path.rpartition(".")[2]
        kinds = {"py": (text.python, "text/x-python; charset=utf-8"), "json": (text.json, "application/json")}
        write, media_type = kinds[suffix]
        with self.reader.connect() as conn:
            traces.state(conn, trace_id)

        def texts() -> Iterator[str]:
            with self.reader.connect() as conn:
                yield from write(conn, trace_id)

        return StreamingResponse(texts(), media_type=media_type, headers=attachment(f"trace-{trace_id}.{suffix}"))
