"""The installation's figures for Prometheus. docs/metrics.md defines each figure.

A reading is cheap at a million blocks: it sums over traces and materialised views, reads open steps by their
index, and uses PostgreSQL's own statistics. It never counts blocks, candidates or steps. If the broker or a
server is down, a figure says so, and the other figures stay.
"""

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import psycopg
from kombu.connection import Connection as BrokerConnection
from kombu.exceptions import ChannelError, OperationalError
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from weavegen import config, sql
from weavegen.config import SIMULATED_MODEL
from weavegen.database import Connection, Database
from weavegen.errors import ModelError, TransientError
from weavegen.pool import metrics as server_metrics
from weavegen.pool.http import Http
from weavegen.pool.survey import report
from weavegen.services import faults as installation
from weavegen.services import pool_members, processes
from weavegen.services.redis import broker_url
from weavegen.store import reports, servers
from weavegen.version import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of what `text` returns (Prometheus' text format)."""
TIMEOUT_SECONDS = 2.0
"""Time limit for an answer of a model server or of the broker."""
QUERY_TIMEOUT_SECONDS = 5.0
GROUPS = sorted(file.stem for file in (Path(__file__).parent / "sql" / "metrics").glob("*.sql"))
QUERIES = {group: sql.load(f"monitoring/metrics/{group}") for group in GROUPS}
"""Queries of groups of metrics: a column of text is a label, and each column of numbers a metric, which is declared in
a comment: `-- gauge NAME: HELP` or `-- counter NAME: HELP`."""
Family = GaugeMetricFamily | CounterMetricFamily
KINDS: dict[str, type[Family]] = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
READY = "weavegen_steps_ready"
"""The metric that has every queue as a label."""


def text(conn: Connection) -> str:
    """All figures in Prometheus' text format (CONTENT_TYPE). Ends the transaction. Raises psycopg.Error."""
    return generate_latest(SimpleNamespace(collect=lambda: read(conn))).decode()


def answer(reader: Database) -> tuple[int, str]:
    """HTTP status and text of an answer to Prometheus."""
    try:
        with reader.connect() as conn:
            return 200, text(conn)
    except psycopg.Error:
        return 503, "the database does not answer\n"


def read(conn: Connection) -> Iterator[Metric]:
    """All figures, one by one."""
    settings = config.load()
    began = time.perf_counter()
    conn.rollback()
    sql.run(conn, "store/only_read")
    reports.limit_time(conn, QUERY_TIMEOUT_SECONDS)
    yield InfoMetricFamily("weavegen_build", "The running version.", {"version": __version__})
    unread: set[str] = set()
    metrics = list(database(conn, unread))
    yield from metrics
    about = "Whether a group of figures could not be read: 1 while its views are made, or if it takes too long."
    yield family("scrape_errors", about, "group", ((group, group in unread) for group in GROUPS))
    queues = [sample.labels["queue"] for metric in metrics if metric.name == READY for sample in metric.samples]
    members, homes = pool_members.members(conn, settings), reports.traces_by_server(conn)
    health = servers.health(conn, members.keys)
    conn.rollback()
    count = Counter(fault.kind for fault in installation.faults(conn, settings))
    about = "Faults: what is broken and keeps traces from going on."
    yield family("faults", about, "kind", ((kind, count[kind]) for kind in installation.KINDS))
    restarts = ((service.name, service.restarts) for service in processes.registered(settings).values())
    yield family("service_restarts", "Restarts of a service by the supervisor.", "service", restarts, counter=True)
    after_database = time.perf_counter()
    yield from broker(broker_url(settings), queues)
    after_broker = time.perf_counter()
    yield from pool(members, homes)
    yield from failures(members, health)
    seconds = {
        "database": after_database - began,
        "broker": after_broker - after_database,
        "servers": time.perf_counter() - after_broker,
    }
    yield family("scrape_duration_seconds", "Duration of this reading by part.", "part", seconds.items())


def family(
    name: str, help: str, label: str, values: Iterable[tuple[str | None, float]], *, counter: bool = False
) -> Metric:
    """Figures by the values of one label. `_total` is appended to a counter's name."""
    metric = KINDS["counter" if counter else "gauge"](f"weavegen_{name}", help, labels=[label])
    for value, number in values:
        metric.add_metric([value or "unknown"], float(number))
    return metric


def database(conn: Connection, unread: set[str]) -> Iterator[Metric]:
    """The figures of sql/metrics/: for each query its metrics, with a sample for each row.

    Groups that can't be read are left out and added to `unread`. Raises psycopg.Error if the connection has ended.
    """
    for group, query in QUERIES.items():
        try:
            with conn.transaction():  # a savepoint
                rows = conn.execute(query).mappings()
        except psycopg.Error:
            if conn.closed:
                raise
            unread.add(group)
            continue
        declared = re.findall(r"^-- (gauge|counter) (\w+): (.*)$", query.text, re.MULTILINE)
        for kind, name, help in declared:
            columns = {name for _, name, _ in declared}
            labels = [column for column in (rows[0] if rows else ()) if column not in columns]
            metric = KINDS[kind](f"weavegen_{name}", help, labels=labels)
            for row in rows:
                if row[name] is not None:
                    metric.add_metric([row[label] or "unknown" for label in labels], float(row[name]))
            yield metric


def broker(url: str, queues: Sequence[str]) -> Iterator[Metric]:
    """Messages in the broker by queue: ids of steps that no worker has fetched."""
    depths: dict[str, int] = {}
    up = False
    options = {"socket_timeout": TIMEOUT_SECONDS}
    with suppress(OperationalError, OSError, ValueError, KeyError):
        with BrokerConnection(url, connect_timeout=TIMEOUT_SECONDS, transport_options=options) as connection:  # type: ignore[no-untyped-call]
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=TIMEOUT_SECONDS)
            for queue in queues:
                try:
                    declared = connection.default_channel.queue_declare(queue=queue, passive=True)
                    depths[queue] = int(declared.message_count)
                except ChannelError:  # the queue does not exist: it never had a message
                    depths[queue] = 0
        up = True
    yield GaugeMetricFamily("weavegen_broker_up", "Whether the broker answers.", value=float(up))
    yield family("queue_messages", "Messages in the broker that no worker has fetched.", "queue", depths.items())


def ask(url: str, key: str) -> tuple[bool, str | None, server_metrics.Metrics | None]:
    """Whether a model server answers, its model and its metrics. None: it is down, or does not report it."""
    with closing(Http(key, TIMEOUT_SECONDS)) as http:
        try:
            return True, *report(url, http, TIMEOUT_SECONDS)
        except (TransientError, ModelError):
            return False, None, None


def failures(members: pool_members.Members, health: Sequence[servers.ServerHealth]) -> Iterator[Metric]:
    """Failures of the workers' requests to model servers."""
    failing = {server.url for server in health if server.failing}
    about = "Whether all requests of workers to a model server fail."
    yield family("server_failing", about, "server", ((url, url in failing) for url in members.keys))
    about = "Requests to model servers that failed."
    errors = CounterMetricFamily("weavegen_server_errors", about, labels=["server", "kind"])
    for server in health:
        for kind, count in server.by_kind.items():
            errors.add_metric([server.url, kind], float(count))
    yield errors


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


def pool(members: pool_members.Members, homes: Mapping[str, int]) -> Iterator[Metric]:
    """The model servers, which are asked in parallel. `homes`: running traces by the URL of their home."""
    with ThreadPoolExecutor(max(1, len(members.keys))) as threads:
        rows = dict(zip(members.keys, threads.map(ask, members.keys, members.keys.values()), strict=True))
    info = GaugeMetricFamily(
        "weavegen_server_info",
        "A model server of the pool. simulated: the server is weavegen's simulation, not a model.",
        labels=["server", "owner", "model", "simulated"],
    )
    for url, (_, model, _) in rows.items():
        simulated = "" if model is None else str(model == SIMULATED_MODEL).lower()
        info.add_metric([url, members.owners.get(url, ""), model or "", simulated], 1.0)
    yield info
    up = ((url, answers) for url, (answers, *_) in rows.items())
    yield family("server_up", "Whether a model server answers.", "server", up)
    traces = ((url, homes.get(url, 0)) for url in rows)
    yield family("server_traces", "Running traces whose home the server is.", "server", traces)
    for name, field, help, counter in FIGURES:
        values = ((url, getattr(figures, field)) for url, (*_, figures) in rows.items() if figures is not None)
        yield family(name, help, "server", values, counter=counter)
