"""What an installation is doing, as Prometheus reads it: docs/metrics.md says what each figure means.

Everything is cheap at a million blocks: sums over traces, the open steps by their partial index, sums over
materialised views, PostgreSQL's own statistics. Nothing that grows with blocks, candidates or steps is counted. A
part that can't be read (a broker or a server that is away) is told as such, and the others stay.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from kombu.connection import Connection
from kombu.exceptions import ChannelError, OperationalError
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from weavegen import __version__, config
from weavegen.config import SIMULATED_MODEL
from weavegen.errors import ModelError, TransientError
from weavegen.pool import metrics as server_metrics
from weavegen.pool.http import Http
from weavegen.pool.served import list_models
from weavegen.services.redis import broker_url
from weavegen.store import reports, servers

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of what `text` returns (Prometheus' text format)."""
TIMEOUT = 2.0
"""Seconds that a model server or the broker has for an answer."""
QUERY_TIMEOUT = 5.0
"""Seconds that each query may take."""
QUEUES = ("control", "sample", "score", "lint", "execute")
"""Celery queues that are there in any case; besides them each host has its own, execute.<host>."""

TRACES = """
select status, failure_kind, count(*) as traces, sum(ticks)::bigint as ticks, sum(restarts)::bigint as restarts,
  sum(greatest(0, blocks - coalesce(fork_at, 0)))::bigint as blocks, sum(bytes - shared_bytes)::bigint as bytes,
  sum(sampled_tokens)::bigint as sampled_tokens, sum(candidates)::bigint as candidates,
  sum(written)::bigint as written
from traces group by status, failure_kind
"""
JOBS = "select state, count(*) as jobs from jobs group by state"
# By the partial index on open steps, of which there are a few for each running trace.
OPEN_STEPS = """
select s.queue, s.kind, s.status, j.state = 'paused' as paused, count(*) as steps,
  count(*) filter (where s.failure is not null) as retrying,
  count(*) filter (where s.lease_until < clock_timestamp()) as expired,
  extract(epoch from clock_timestamp() - min(s.ready_at))::double precision as oldest
from steps s join traces t on t.id = s.trace_id join jobs j on j.id = t.job_id
where s.status in ('ready', 'running')
group by s.queue, s.kind, s.status, j.state = 'paused'
"""
STEPS = """
select kind, sum(steps)::bigint as steps, sum(retried)::bigint as retried, sum(failed)::bigint as failed,
  sum(model_seconds) as model, sum(environment_seconds) as environment, sum(own_seconds) as own,
  sum(waiting_seconds) as waiting
from step_times where kind not in ('work', 'delegate', 'await') group by kind order by kind
"""
ERRORS = "select stage, sum(errors)::bigint as errors from errors_by_stage group by stage order by stage"
PENALTIES = (
    "select penalty, sum(penalised)::bigint as penalised from penalty_stats group by penalty order by penalty"
)
VIEWS = "select name, seconds_ago, seconds from freshness"
ENVIRONMENTS = "select host, count(*) as environments from environments where closed_at is null group by host"
DATABASE = "select pg_database_size(current_database()) as bytes"
# As autovacuum and analyze last saw them: counting them would read them.
ROWS = """
select relname as name, n_live_tup as rows from pg_stat_user_tables
where relname in ('traces', 'ticks', 'blocks', 'candidates', 'scores', 'steps', 'model_usage') order by relname
"""


def text(conn: sa.Connection) -> str:
    """All metrics, in Prometheus' text format (CONTENT_TYPE). Read-only; the connection's transaction is ended.

    Raises SQLAlchemy's errors where the database does not answer.
    """
    registry = CollectorRegistry()
    registry.register(_Read(read(conn)))
    return generate_latest(registry).decode()


def answer(engine: sa.Engine) -> tuple[int, str]:
    """HTTP status and text of an answer to Prometheus."""
    try:
        with engine.connect() as conn:
            return 200, text(conn)
    except (sa.exc.DBAPIError, sa.exc.TimeoutError):
        return 503, "the database does not answer\n"


class _Read(Collector):
    """Metrics that were read before: a registry asks for them twice."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self.metrics = list(metrics)

    def collect(self) -> list[Metric]:
        return self.metrics


def read(conn: sa.Connection) -> Iterator[Metric]:
    """The metrics, one by one."""
    settings = config.load()
    began = time.perf_counter()
    conn.rollback()
    conn.execute(sa.text("set transaction read only"))
    conn.execute(sa.text(f"set local statement_timeout = {int(QUERY_TIMEOUT * 1000)}"))
    yield InfoMetricFamily("weavegen_build", "What runs here.", {"version": __version__})
    yield from traces(conn)
    steps = conn.execute(sa.text(OPEN_STEPS)).all()
    hosts = conn.execute(sa.text(ENVIRONMENTS)).all()
    queues = sorted({*QUEUES, *(row.queue for row in steps), *(f"execute.{row.host}" for row in hosts)})
    yield from open_steps(steps, queues)
    yield family(
        "environments_open", "Live Python processes of traces.", "host", ((row[0], row[1]) for row in hosts)
    )
    yield from work_done(conn)
    yield from stored(conn)
    members, homes = servers.members(conn, settings), reports.traces_by_server(conn)
    conn.rollback()
    database = time.perf_counter()
    yield from broker(broker_url(settings), queues)
    waited = time.perf_counter()
    yield from pool(members, homes)
    parts = (database - began, waited - database, time.perf_counter() - waited)
    named = zip(("database", "broker", "servers"), parts, strict=True)
    yield family("scrape_duration_seconds", "How long this reading took, by what was read.", "part", named)


def family(
    name: str, help: str, label: str, values: Iterable[tuple[str | None, float]], *, counter: bool = False
) -> Metric:
    """Figures by one label; a counter's name gets `_total` behind it."""
    kind = CounterMetricFamily if counter else GaugeMetricFamily
    found = kind(f"weavegen_{name}", help, labels=[label])
    for value, number in values:
        found.add_metric([value or "unknown"], float(number))
    return found


def counter(name: str, help: str, value: float) -> Metric:
    """One sum; its name gets `_total` behind it."""
    return CounterMetricFamily(f"weavegen_{name}", help, value=float(value))


def gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(f"weavegen_{name}", help, value=float(value))


def traces(conn: sa.Connection) -> Iterator[Metric]:
    """Jobs and traces, and what they have come to."""
    states = dict.fromkeys(("active", "paused", "draining"), 0)
    states |= {row.state: row.jobs for row in conn.execute(sa.text(JOBS))}
    yield family("jobs", "Jobs by what people want of them.", "state", states.items())
    rows = conn.execute(sa.text(TRACES)).all()
    statuses = dict.fromkeys(("queued", "running", "ended", "failed", "cancelled"), 0)
    failures = dict.fromkeys(("model", "environment", "bootstrap", "bug"), 0)
    for row in rows:
        statuses[row.status] += row.traces
        if row.status == "failed":
            kind = row.failure_kind or "unknown"
            failures[kind] = failures.get(kind, 0) + row.traces
    yield family("traces", "Traces by status.", "status", statuses.items())
    yield family("trace_failures", "Traces that failed, by kind.", "kind", failures.items(), counter=True)
    for name, column, help in (
        ("blocks", "blocks", "Blocks recorded; copies in forks do not count, nor below."),
        ("trace_bytes", "bytes", "Bytes of rendered trace."),
        ("ticks", "ticks", "Ticks finished, the bootstraps' not counted."),
        ("tick_restarts", "restarts", "Ticks that were started over."),
        ("sampled_tokens", "sampled_tokens", "Tokens sampled from the model, losers included."),
        ("candidates", "candidates", "Candidates sampled for blocks, losers included."),
        ("written_blocks", "written", "Blocks that were made of a candidate."),
    ):
        yield counter(name, help, sum(getattr(row, column) for row in rows))


def open_steps(rows: Sequence[Any], queues: Sequence[str]) -> Iterator[Metric]:
    """Steps that are not over. Those of paused jobs wait for people, and are counted apart."""
    ready = dict.fromkeys(queues, 0)
    retrying, oldest = dict.fromkeys(queues, 0), dict.fromkeys(queues, 0.0)
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
    yield family("steps_retrying", "Of these, those that failed for now.", "queue", retrying.items())
    yield family(
        "oldest_ready_step_age_seconds",
        "How long the oldest of these has waited; 0: none.",
        "queue",
        oldest.items(),
    )
    yield gauge("steps_paused", "Ready steps of paused jobs.", paused)
    yield family("steps_running", "Steps that a worker holds, or that wait for others.", "kind", running.items())
    yield gauge("steps_expired", "Running steps whose lease has run out: their workers fell silent.", expired)


def work_done(conn: sa.Connection) -> Iterator[Metric]:
    """What steps came to, as of the last refresh of the materialised views."""
    rows = conn.execute(sa.text(STEPS)).all()
    for name, column, help in (
        ("steps", "steps", "Steps of the journal"),
        ("step_retries", "retried", "Steps that were taken more than once"),
        ("step_failures", "failed", "Steps that failed for good"),
        ("model_seconds", "model", "Seconds that steps waited for model servers"),
        ("environment_seconds", "environment", "Seconds that steps waited for environments"),
        ("own_seconds", "own", "Seconds of steps besides these two"),
        ("waiting_seconds", "waiting", "Seconds from steps' being ready to their being taken"),
    ):
        values = ((row.kind, getattr(row, column) or 0) for row in rows)
        yield family(name, f"{help}. As of the last refresh.", "kind", values, counter=True)
    errors = ((row.stage, row.errors) for row in conn.execute(sa.text(ERRORS)))
    yield family("errors", "What went wrong, by stage. As of the last refresh.", "stage", errors, counter=True)
    penalised = ((row.penalty, row.penalised) for row in conn.execute(sa.text(PENALTIES)))
    yield family(
        "penalised_candidates", "Candidates by what linting found. As of the last refresh.", "penalty", penalised,
        counter=True,
    )  # fmt: skip


def stored(conn: sa.Connection) -> Iterator[Metric]:
    """The database, and how old the materialised views are."""
    views = conn.execute(sa.text(VIEWS)).all()
    ages = ((row.name, row.seconds_ago) for row in views)
    yield family("view_age_seconds", "Since the last refresh of a materialised view.", "view", ages)
    took = ((row.name, row.seconds) for row in views if row.seconds is not None)
    yield family("view_refresh_seconds", "How long that took.", "view", took)
    yield gauge("database_size_bytes", "Size of the database.", conn.execute(sa.text(DATABASE)).scalar_one())
    rows = ((row.name, row.rows) for row in conn.execute(sa.text(ROWS)))
    yield family("table_rows", "Rows of the large tables, as PostgreSQL estimates.", "table", rows)


def broker(url: str, queues: Sequence[str]) -> Iterator[Metric]:
    """Messages that lie in the broker, by queue: ids of steps that no worker has fetched."""
    depths: dict[str, int] = {}
    up = True
    try:
        with Connection(url, connect_timeout=TIMEOUT, transport_options={"socket_timeout": TIMEOUT}) as connection:  # type: ignore[no-untyped-call]
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=TIMEOUT)
            for queue in queues:
                try:
                    declared = connection.default_channel.queue_declare(queue=queue, passive=True)
                    depths[queue] = int(declared.message_count)
                except ChannelError:  # nothing was ever sent there
                    depths[queue] = 0
    except (OperationalError, OSError, ValueError, KeyError):
        up = False
    yield gauge("broker_up", "Whether the broker answers.", up)
    yield family("queue_messages", "Messages in the broker that no worker has fetched.", "queue", depths.items())


@dataclass(frozen=True)
class _Server:
    """What a model server tells of itself; None: it is away, or has no such metrics."""

    url: str
    up: bool
    model: str | None = None
    figures: server_metrics.Metrics | None = None


def _look(url: str, key: str) -> _Server:
    http = Http(key, TIMEOUT)
    try:
        models = list_models(url, http, TIMEOUT)
        model = models[0].id if models else None
        try:
            return _Server(url, True, model, server_metrics.read(url, http, TIMEOUT))
        except ModelError:
            return _Server(url, True, model)
    except (TransientError, ModelError):
        return _Server(url, False)
    finally:
        http.close()


FIGURES = (
    ("server_requests_running", "running", "Sequences in the server's batch.", False),
    ("server_requests_waiting", "waiting", "Sequences that wait for a place in it.", False),
    ("server_kv_cache_usage_ratio", "cache", "Use of its KV cache, 0 to 1.", False),
    ("server_prompt_tokens", "prompt", "Prompt tokens since its start, cached ones included.", True),
    ("server_generated_tokens", "generated", "Tokens that it generated.", True),
    ("server_prefix_cache_queries", "queries", "Prompt tokens looked up in its prefix cache.", True),
    ("server_prefix_cache_hits", "hits", "Prompt tokens found there.", True),
    ("server_preemptions", "preemptions", "Sequences that it put back for lack of room.", True),
)
"""Name, field of pool.metrics.Metrics, help, whether it is a counter."""


def pool(members: servers.Members, homes: Mapping[str, int]) -> Iterator[Metric]:
    """The model servers, asked side by side. `homes`: running traces that stick to each, by URL."""
    with ThreadPoolExecutor(max(1, len(members.keys))) as threads:
        rows = list(threads.map(_look, members.keys, members.keys.values()))
    about = GaugeMetricFamily(
        "weavegen_server_info", "A model server of the pool; simulated: it is weavegen's simulation, no model.",
        labels=["server", "owner", "model", "simulated"],
    )  # fmt: skip
    for row in rows:
        simulated = "" if row.model is None else str(row.model == SIMULATED_MODEL).lower()
        about.add_metric([row.url, members.owners.get(row.url, ""), row.model or "", simulated], 1.0)
    yield about
    yield family("server_up", "Whether a model server answers.", "server", ((row.url, row.up) for row in rows))
    on_it = ((row.url, homes.get(row.url, 0)) for row in rows)
    yield family("server_traces", "Running traces that stick to it.", "server", on_it)
    for name, field, help, counts in FIGURES:
        known = ((row.url, getattr(row.figures, field)) for row in rows if row.figures is not None)
        yield family(name, help, "server", known, counter=counts)
