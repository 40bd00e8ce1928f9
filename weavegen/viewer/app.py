"""The viewer as a web application: its addresses, its error pages, its middleware and its HTTP server."""

import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import psycopg
import uvicorn
from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from weavegen.config import Config
from weavegen.database import Database
from weavegen.errors import UsageError
from weavegen.http_server import Server as HttpServer
from weavegen.store.session import read_only
from weavegen.viewer.annotations import Annotations
from weavegen.viewer.chat import Chat
from weavegen.viewer.compare import Compare
from weavegen.viewer.guard import LOCAL, Guard
from weavegen.viewer.live import NO_DATABASE, Events
from weavegen.viewer.pages import QUERY_SECONDS, Pages
from weavegen.viewer.rendering import STATIC
from weavegen.viewer.responses import page
from weavegen.viewer.tool_requests import ToolRequests

MAX_CONNECTIONS = 8
"""Connections of the reader. Further requests wait for one."""
TOO_SLOW = f"A query took longer than {QUERY_SECONDS:g} seconds and was ended. Is the database busy? Try again later."
REFUSED = "The database refused the query: {}. Does it have this version's schema? `weavegen up` updates it."


class RowConvertor(StringConvertor):
    """A number in a path. `path_number` checks it: Starlette's own conversion fails for very long ones."""

    regex = "[0-9]+"


register_url_convertor("row", RowConvertor())


def reader(config: Config, url: str) -> Database:
    """Read-only connections to the database at `url`. Each statement is a transaction."""
    return read_only(config, url, QUERY_SECONDS, MAX_CONNECTIONS, autocommit=True)


def make_app(reader: Database, writer: Database | None, hosts: frozenset[str] | None = LOCAL) -> Starlette:
    """The viewer. `writer`: None leaves it without forms. `hosts`: host names that are answered; None: all."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        reader.close()
        if writer is not None:
            writer.close()

    app = Starlette(
        routes=routes(reader, writer),
        lifespan=lifespan,
        middleware=[Middleware(Guard, hosts=hosts), Middleware(GZipMiddleware, minimum_size=2_000, compresslevel=4)],
        exception_handlers={
            404: partial(problem_page, text="there is no such page"),
            UsageError: not_found,
            # A value that the database can't even compare with, such as text with NUL.
            psycopg.DataError: partial(problem_page, text="the address has a value that no row can have"),
            psycopg.Error: partial(problem_page, title="No answer", text=REFUSED, status=500),
            psycopg.errors.QueryCanceled: partial(problem_page, title="No answer", text=TOO_SLOW, status=503),
            psycopg.OperationalError: partial(problem_page, title="No answer", text=NO_DATABASE, status=503),
        },
    )
    app.state.closing = False
    return app


def routes(reader: Database, writer: Database | None) -> list[Route | Mount]:
    """The pages by address."""
    annotations, requests = Annotations(reader, writer), ToolRequests(reader, writable=writer is not None)
    pages, compare, events, chat = Pages(reader, annotations.me), Compare(reader), Events(reader), Chat(reader, writer)
    trace = "/traces/{trace:row}"
    get: dict[str, Callable[..., Any]] = {
        "/": pages.jobs,
        "/jobs/{job:row}": pages.job,
        "/jobs/{job:row}/report": pages.report,
        "/jobs/{job:row}/report.html": pages.report,
        "/candidates/{candidate:row}": pages.candidate,
        trace: pages.trace,
        f"{trace}/blocks": pages.blocks,
        f"{trace}/blocks/{{index:row}}": pages.trace,
        f"{trace}/blocks/{{index:row}}/candidates": pages.candidates,
        f"{trace}/blocks/{{index:row}}/prompt": pages.prompt,
        f"{trace}/next": pages.next,
        f"{trace}/ticks": pages.part,
        f"{trace}/ticks/{{tick:row}}": pages.tick,
        f"{trace}/problems": pages.part,
        f"{trace}/about": pages.part,
        f"{trace}/chat": chat.page,
        f"{trace}.py": pages.download,
        f"{trace}.json": pages.download,
        "/requests": requests.list,
        "/requests/{number:row}": requests.show,
        "/review": annotations.review,
        "/compare/jobs": compare.jobs,
        "/compare/traces": compare.traces,
        "/search": pages.search,
        "/figures": pages.figures,
        "/metrics": pages.metrics,
        "/events/jobs": events.jobs,
        f"/events{trace}": events.trace,
        f"/events{trace}/chat": events.chat,
        "/robots.txt": lambda request: PlainTextResponse("User-agent: *\nDisallow: /\n"),
    }
    return [
        *(Route(path, endpoint, methods=["GET"]) for path, endpoint in get.items()),
        Route(f"{trace}/chat", chat.post, methods=["POST"]),
        Route("/annotations", annotations.post, methods=["POST"]),
        Route("/annotator", annotations.name, methods=["POST"]),
        Route("/requests", requests.create, methods=["POST"]),
        Route("/requests/{number:row}", requests.change, methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC), name="static"),
    ]


async def not_found(request: Request, error: Exception) -> Response:
    """The page for a UsageError: a missing row, or a form that can't be accepted."""
    return page("problem.html", 404 if request.method == "GET" else 400, title="Not found", problem=str(error))


async def problem_page(
    request: Request, error: Exception, *, text: str, title: str = "Not found", status: int = 404
) -> Response:
    return page("problem.html", status, title=title, problem=text.format(" ".join(str(error).split())[:300]))


class Server(HttpServer):
    """Ends event streams at shutdown, because open pages would delay it. Browsers reconnect by themselves."""

    def __init__(self, viewer: Starlette) -> None:
        self.viewer = viewer
        # Requests under way, such as a query, get 5 seconds to end.
        super().__init__(uvicorn.Config(viewer, log_level="warning", access_log=False, timeout_graceful_shutdown=5))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.viewer.state.closing = True
        await super().shutdown(sockets)
