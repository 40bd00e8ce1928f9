"""The installation's figures for Prometheus. docs/metrics.md defines each figure.

A reading is cheap at a million blocks: it sums over traces and materialised views, reads open steps by their
index, and uses PostgreSQL's own statistics. It never counts blocks, candidates or steps. If the broker or a
server is away, a figure says so, and the other figures stay.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIServer

import sqlalchemy as sa
from kombu.connection import Connection
from kombu.exceptions import ChannelError, OperationalError
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import make_wsgi_app
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from weavegen import __version__, config
from weavegen.config import SIMULATED_MODEL
from weavegen.errors import ModelError, TransientError, UsageError
from weavegen.monitoring import queries
from weavegen.pool import metrics as server_metrics
from weavegen.pool.http import Http
from weavegen.pool.served import served
from weavegen.services.redis import broker_url
from weavegen.store import reports, servers

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of what `text` returns (Prometheus' text format)."""
TIMEOUT_SECONDS = 2.0
"""For an answer of a model server or of the broker."""
QUERY_TIMEOUT_SECONDS = 5.0
QUEUES = ("control", "sample", "score", "lint", "execute")
"""Celery queues of every installation. Each host has one more: execute.<host>."""
QUERIES = queries.load("metrics")
DATABASE_AWAY = "the database does not answer\n"


class Reading(Collector):
    """Reads all figures whenever the registry collects."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self.read = read

    def collect(self) -> list[Metric]:
        return list(self.read())


def text(conn: sa.Connection) -> str:
    """All figures in Prometheus' text format (CONTENT_TYPE). Ends the connection's transaction, and only reads.

    Raises SQLAlchemy's errors if the database does not answer.
    """
    registry = CollectorRegistry()
    registry.register(Reading(lambda: read(conn)))
    return generate_latest(registry).decode()


def answer(engine: sa.Engine) -> tuple[int, str]:
    """HTTP status and text of an answer to Prometheus."""
    try:
        with engine.connect() as conn:
            return 200, text(conn)
    except (sa.exc.DBAPIError, sa.exc.TimeoutError):
        return 503, DATABASE_AWAY


def listener(engine: sa.Engine, host: str, port: int) -> tuple[WSGIServer, threading.Thread]:
    """Start prometheus_client's HTTP server for GET /metrics, and return it with its thread.

    Raises UsageError if it can't listen at this address.
    """

    def figures() -> list[Metric]:
        with engine.connect() as conn:
            return list(read(conn))

    registry = CollectorRegistry()
    registry.register(Reading(figures))
    page, turn = make_wsgi_app(registry), threading.Lock()

    def app(environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
        headers = [("Content-Type", CONTENT_TYPE)]
        if environ["PATH_INFO"] != "/metrics":
            start("404 Not Found", headers)
            return [b"the figures are at /metrics\n"]
        try:
            with turn:
                return page(environ, start)  # type: ignore[no-any-return]
        except (sa.exc.DBAPIError, sa.exc.TimeoutError):
            start("503 Service Unavailable", headers)
            return [DATABASE_AWAY.encode()]

    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{host}:{port} can't be listened on ({reason}): give another --listen or --host"
        ) from None
    server.set_app(app)
    return server, thread


def read(conn: sa.Connection) -> Iterator[Metric]:
    """All figures, one by one."""
    settings = config.load()
    began = time.perf_counter()
    conn.rollback()
    conn.execute(sa.text("set transaction read only"))
    conn.execute(sa.text(f"set local statement_timeout = {int(QUERY_TIMEOUT_SECONDS * 1000)}"))
    yield InfoMetricFamily("weavegen_build", "The running version.", {"version": __version__})
    yield from traces(conn)
    steps = conn.execute(QUERIES["open_steps"]).all()
    hosts = conn.execute(QUERIES["environments"]).all()
    queues = sorted({*QUEUES, *(row.queue for row in steps), *(f"execute.{row.host}" for row in hosts)})
    yield from open_steps(steps, queues)
    environments = ((row.host, row.environments) for row in hosts)
    yield family("environments_open", "Live Python processes of traces.", "host", environments)
    yield from finished_steps(conn)
    yield from stored(conn)
    members, homes = servers.members(conn, settings), reports.traces_by_server(conn)
    conn.rollback()
    database = time.perf_counter()
    yield from broker(broker_url(settings), queues)
    waited = time.perf_counter()
    yield from pool(members, homes)
    seconds = {
        "database": database - began,
        "broker": waited - database,
        "servers": time.perf_counter() - waited,
    }
    yield family("scrape_duration_seconds", "Duration of this reading by part.", "part", seconds.items())


def family(
    name: str, help: str, label: str, values: Iterable[tuple[str | None, float]], *, counter: bool = False
) -> Metric:
    """Figures by the values of one label. `_total` is appended to a counter's name."""
    metric = (CounterMetricFamily if counter else GaugeMetricFamily)(f"weavegen_{name}", help, labels=[label])
    for value, number in values:
        metric.add_metric([value or "unknown"], float(number))
    return metric


def gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(f"weavegen_{name}", help, value=float(value))


SUMS = (
    ("blocks", "blocks", "Blocks recorded, here and below without copies in forks."),
    ("trace_bytes", "bytes", "Bytes of rendered trace."),
    ("ticks", "ticks", "Ticks finished, without the bootstraps' first ticks."),
    ("tick_restarts", "restarts", "Ticks that were started over."),
    ("sampled_tokens", "sampled_tokens", "Tokens sampled from the model, including rejected candidates."),
    ("candidates", "candidates", "Candidates sampled for blocks, including rejected ones."),
    ("written_blocks", "written", "Blocks that were made of a candidate."),
)
"""Name, column of the query `traces`, help: counters over all traces."""


def traces(conn: sa.Connection) -> Iterator[Metric]:
    """Jobs and traces, and sums over all traces."""
    states = dict.fromkeys(("active", "paused", "draining"), 0)
    states |= {row.state: row.jobs for row in conn.execute(QUERIES["jobs"])}
    yield family("jobs", "Jobs by state.", "state", states.items())
    rows = conn.execute(QUERIES["traces"]).all()
    statuses = dict.fromkeys(("queued", "running", "ended", "failed", "cancelled"), 0)
    failures = dict.fromkeys(("model", "environment", "bootstrap", "bug"), 0)
    for row in rows:
        statuses[row.status] += row.traces
        if row.status == "failed":
            kind = row.failure_kind or "unknown"
            failures[kind] = failures.get(kind, 0) + row.traces
    yield family("traces", "Traces by status.", "status", statuses.items())
    yield family("trace_failures", "Failed traces by kind of failure.", "kind", failures.items(), counter=True)
    for name, column, help in SUMS:
        yield CounterMetricFamily(f"weavegen_{name}", help, value=float(sum(getattr(row, column) for row in rows)))


def open_steps(rows: Sequence[Any], queues: Sequence[str]) -> Iterator[Metric]:
    """Steps that are not over. Ready steps of paused jobs are counted apart."""
    ready, retrying = dict.fromkeys(queues, 0), dict.fromkeys(queues, 0)
    oldest = dict.fromkeys(queues, 0.0)
    running = dict.fromkeys(("sample", "score", "lint", "retrieve", "execute", "consult"), 0)
    paused = expired = 0
    for row in rows:
        if row.status == "running":
            running[row.kind] = running.get(row.kind, 0) + row.steps
            expired += row.expired
        elif row.paused:
            paused += row.steps
        else:
            ready[row.queue] += row.steps
            retrying[row.queue] += row.retrying
            oldest[row.queue] = max(oldest[row.queue], row.oldest)
    yield family("steps_ready", "Steps that no worker has taken.", "queue", ready.items())
    yield family(
        "steps_retrying", "Ready steps that failed before and are tried again.", "queue", retrying.items()
    )
    help = "Age of the oldest ready step; 0: there is none."
    yield family("oldest_ready_step_age_seconds", help, "queue", oldest.items())
    yield gauge("steps_paused", "Ready steps of paused jobs.", paused)
    yield family("steps_running", "Steps that a worker holds, or that wait for others.", "kind", running.items())
    yield gauge("steps_expired", "Running steps whose lease has expired: their worker does not answer.", expired)


STEP_SUMS = (
    ("steps", "steps", "Steps of the journal"),
    ("step_retries", "retried", "Steps that were taken more than once"),
    ("step_failures", "failed", "Steps that failed for good"),
    ("model_seconds", "model", "Seconds that steps waited for model servers"),
    ("environment_seconds", "environment", "Seconds that steps waited for environments"),
    ("own_seconds", "own", "Seconds of steps without these two"),
    ("waiting_seconds", "waiting", "Seconds between a step's becoming ready and its claim"),
)
"""Name, column of the query `steps`, help: counters by kind of step."""


def finished_steps(conn: sa.Connection) -> Iterator[Metric]:
    """Sums over finished steps, as of the last refresh of the materialised views."""
    rows = conn.execute(QUERIES["steps"]).all()
    for name, column, help in STEP_SUMS:
        values = ((row.kind, getattr(row, column) or 0) for row in rows)
        yield family(name, f"{help}. As of the last refresh.", "kind", values, counter=True)
    errors = ((row.stage, row.errors) for row in conn.execute(QUERIES["errors"]))
    yield family("errors", "Errors by stage. As of the last refresh.", "stage", errors, counter=True)
    penalised = ((row.penalty, row.penalised) for row in conn.execute(QUERIES["penalties"]))
    help = "Candidates by the penalty that linting gave. As of the last refresh."
    yield family("penalised_candidates", help, "penalty", penalised, counter=True)


def stored(conn: sa.Connection) -> Iterator[Metric]:
    """The database, and the age of the materialised views."""
    views = conn.execute(QUERIES["views"]).all()
    ages = ((row.name, row.seconds_ago) for row in views)
    yield family("view_age_seconds", "Time since the last refresh of a materialised view.", "view", ages)
    took = ((row.name, row.seconds) for row in views if row.seconds is not None)
    yield family("view_refresh_seconds", "Duration of that refresh.", "view", took)
    yield gauge("database_size_bytes", "Size of the database.", conn.execute(QUERIES["database"]).scalar_one())
    rows = ((row.name, row.rows) for row in conn.execute(QUERIES["rows"]))
    yield family("table_rows", "Rows of the large tables, as PostgreSQL estimates.", "table", rows)


def broker(url: str, queues: Sequence[str]) -> Iterator[Metric]:
    """Messages in the broker by queue: ids of steps that no worker has fetched."""
    depths: dict[str, int] = {}
    up = True
    try:
        options = {"socket_timeout": TIMEOUT_SECONDS}
        with Connection(url, connect_timeout=TIMEOUT_SECONDS, transport_options=options) as connection:  # type: ignore[no-untyped-call]
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=TIMEOUT_SECONDS)
            for queue in queues:
                try:
                    declared = connection.default_channel.queue_declare(queue=queue, passive=True)
                    depths[queue] = int(declared.message_count)
                except ChannelError:  # the queue does not exist: it never had a message
                    depths[queue] = 0
    except (OperationalError, OSError, ValueError, KeyError):
        up = False
    yield gauge("broker_up", "Whether the broker answers.", up)
    yield family("queue_messages", "Messages in the broker that no worker has fetched.", "queue", depths.items())


@dataclass(frozen=True)
class Server:
    """What a model server reports."""

    url: str
    up: bool
    model: str | None = None
    figures: server_metrics.Metrics | None = None
    """None: the server is away, or is no vLLM and has no such metrics."""


def ask(url: str, key: str) -> Server:
    """Ask a model server for its model and its metrics."""
    http = Http(key, TIMEOUT_SECONDS)
    try:
        models = served(url, http, TIMEOUT_SECONDS)
        model = models[0].id if models else None
        try:
            return Server(url, True, model, server_metrics.read(url, http, TIMEOUT_SECONDS))
        except ModelError:
            return Server(url, True, model)
    except (TransientError, ModelError):
        return Server(url, False)
    finally:
        http.close()


FIGURES = (
    ("server_requests_running", "running", "Sequences in the server's batch.", False),
    ("server_requests_waiting", "waiting", "Sequences that wait for a place in the batch.", False),
    ("server_kv_cache_usage_ratio", "cache", "Use of the KV cache, 0 to 1.", False),
    ("server_prompt_tokens", "prompt", "Prompt tokens since the server's start, including cached ones.", True),
    ("server_generated_tokens", "generated", "Generated tokens.", True),
    ("server_prefix_cache_queries", "queries", "Prompt tokens that were looked up in the prefix cache.", True),
    ("server_prefix_cache_hits", "hits", "Prompt tokens that were found there.", True),
    ("server_preemptions", "preemptions", "Sequences that were put back because the KV cache was full.", True),
)
"""Name, field of pool.metrics.Metrics, help, whether it is a counter."""


def pool(members: servers.Members, homes: Mapping[str, int]) -> Iterator[Metric]:
    """The model servers, which are asked in parallel. `homes`: running traces by the URL of their home."""
    with ThreadPoolExecutor(max(1, len(members.keys))) as threads:
        rows = list(threads.map(ask, members.keys, members.keys.values()))
    info = GaugeMetricFamily(
        "weavegen_server_info",
        "A model server of the pool. simulated: the server is weavegen's simulation, and no model.",
        labels=["server", "owner", "model", "simulated"],
    )
    for row in rows:
        simulated = "" if row.model is None else str(row.model == SIMULATED_MODEL).lower()
        info.add_metric([row.url, members.owners.get(row.url, ""), row.model or "", simulated], 1.0)
    yield info
    yield family("server_up", "Whether a model server answers.", "server", ((row.url, row.up) for row in rows))
    traces = ((row.url, homes.get(row.url, 0)) for row in rows)
    yield family("server_traces", "Running traces whose home the server is.", "server", traces)
    for name, field, help, counter in FIGURES:
        values = ((row.url, getattr(row.figures, field)) for row in rows if row.figures is not None)
        yield family(name, help, "server", values, counter=counter)
