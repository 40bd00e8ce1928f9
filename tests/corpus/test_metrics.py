"""Metrics: consistent with database, broker and servers, cheap, and named as in the documents and the dashboard."""

import json
import os
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu.connection import Connection
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from simulation.process import Process
from tests.support.sample_corpus import filled
from tests.support.worker import Worker, enqueue, scalar
from weavegen import sql
from weavegen.cli.app import app
from weavegen.config import Config
from weavegen.database import Database, Statement
from weavegen.engine import forking
from weavegen.errors import UsageError
from weavegen.monitoring import metrics
from weavegen.pool.routing import moves
from weavegen.store import servers, urls, workers
from weavegen.store.session import unpooled

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "metrics.md").read_text()
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "weavegen.json").read_text())
LARGE = ("blocks", "candidates", "scores", "penalties", "prompts", "steps", "model_usage")

Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path, "a")
    yield process
    process.kill()


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address on which no server listens, as the pool's only server."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{found.getsockname()[1]}/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    return url


@pytest.fixture(scope="module")
def corpus(config: Config, template: str) -> Iterator[Database]:
    """The sample corpus for all tests of this file, which do not change it."""
    with filled(config, template) as db:
        yield db


def parsed_metrics(db: Database) -> Figures:
    """The metrics that `text` returns, by name and labels."""
    with db.connect() as conn:
        families = text_string_to_metric_families(metrics.text(conn))
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }


def value(figures: Figures, name: str, **labels: str) -> float | None:
    return figures.get((f"weavegen_{name}", frozenset(labels.items())))


def labels_of(figures: Figures) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, labels in figures:
        found.setdefault(name, set()).update(label for label, _ in labels)
    return found


def test_sums_equal_those_of_the_tables(corpus: Database, redis_url: str, no_server: str) -> None:
    figures = parsed_metrics(corpus)
    assert value(figures, "blocks_total") == scalar(corpus, "select count(*) from blocks")
    assert value(figures, "sampled_tokens_total") == scalar(corpus, "select sum(tokens) from candidates")
    written = "select count(*) from blocks where candidate_id is not null"
    assert value(figures, "written_blocks_total") == scalar(corpus, written)
    for status in ("queued", "running", "ended", "failed", "cancelled"):
        count = scalar(corpus, "select count(*) from traces where status = :status", status=status)
        assert value(figures, "traces", status=status) == count
    failed = "select count(*) from traces where failure_kind = 'environment' and status = 'failed'"
    assert value(figures, "trace_failures_total", kind="environment") == scalar(corpus, failed)
    for kind in ("sample", "score"):
        seconds = scalar(corpus, "select sum(model_seconds) from steps where kind = :kind", kind=kind)
        assert value(figures, "model_seconds_total", kind=kind) == pytest.approx(seconds)
    assert value(figures, "server_up", server=no_server) == 0
    assert value(figures, "server_requests_running", server=no_server) is None


def test_steps_are_reported_by_queue_and_age(db: Database, redis_url: str, no_server: str) -> None:
    enqueue(db, 3)
    worker = Worker(db)
    messages = worker.engine.start_queued()
    queue = messages[0].queue
    with db.begin() as conn:
        conn.execute(Statement("update steps set ready_at = ready_at - interval '90 seconds' where id = 1"))
    figures = parsed_metrics(db)
    assert value(figures, "steps_ready", queue=queue) == 3
    age = value(figures, "oldest_ready_step_age_seconds", queue=queue)
    assert age is not None
    assert 90 <= age < 120
    assert value(figures, "steps_ready", queue="score") == 0

    held = worker.claim(messages[0].step_id)
    assert held is not None
    with db.begin() as conn:
        conn.execute(Statement("update steps set lease_until = now() - interval '1 second' where id = 1"))
        conn.execute(Statement("update steps set failure = 'refused' where id = 2"))
    figures = parsed_metrics(db)
    assert value(figures, "steps_ready", queue=queue) == 2
    assert value(figures, "steps_retrying", queue=queue) == 1
    assert value(figures, "steps_expired") == 1
    assert sum(count for (name, _), count in figures.items() if name == "weavegen_steps_running") == 1

    with db.begin() as conn:
        conn.execute(Statement("update jobs set state = 'paused'"))
    figures = parsed_metrics(db)
    assert value(figures, "steps_ready", queue=queue) == 0
    assert value(figures, "oldest_ready_step_age_seconds", queue=queue) == 0
    assert value(figures, "steps_paused") == 2
    assert value(figures, "jobs", state="paused") == 1


def test_the_age_of_a_step_begins_after_its_last_attempt(db: Database, redis_url: str, no_server: str) -> None:
    enqueue(db, 2)
    [message, _] = Worker(db).engine.start_queued()
    with db.begin() as conn:
        conn.execute(Statement("update steps set ready_at = ready_at - interval '1 hour', claimed_at = now()"))
        late = "update steps set claimed_at = now() - interval '90 seconds', failure = 'refused' where id = :step"
        conn.execute(Statement(late), {"step": message.step_id})
    figures = parsed_metrics(db)
    assert value(figures, "steps_ready", queue=message.queue) == 2
    with db.connect() as conn:
        [row] = conn.execute(sql.load("monitoring/open_steps"))
    for age in (value(figures, "oldest_ready_step_age_seconds", queue=message.queue), row.oldest):
        assert age is not None
        assert 90 <= age < 150


def test_ticks_that_a_fork_copied_do_not_count(db: Database, redis_url: str, no_server: str) -> None:
    enqueue(db, 1, ticks=3)
    worker = Worker(db)
    worker.run(worker.engine.start_queued())
    before = value(parsed_metrics(db), "ticks_total")
    assert before == 3
    with db.begin() as conn:
        at = conn.execute(Statement("select first_block from ticks where number = 3")).scalar_one()
        forking.submit(conn, forking.plan(conn, 1, at), 1, seed=7, values={}, name=None, version="0")
    worker.run(worker.engine.start_queued())
    assert scalar(db, "select sum(ticks) from traces") == 6
    assert value(parsed_metrics(db), "ticks_total") == 4


def test_the_broker_s_queues_are_reported(
    db: Database, redis_url: str, no_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Connection(redis_url) as connection:
        queue = connection.SimpleQueue("score")
        for number in range(5):
            queue.put({"step": number})
        try:
            figures = parsed_metrics(db)
        finally:
            queue.clear()
            queue.close()
    assert value(figures, "broker_up") == 1
    assert value(figures, "queue_messages", queue="score") == 5
    assert value(figures, "queue_messages", queue="lint") == 0

    monkeypatch.setenv("CELERY_BROKER_URL", no_server.replace("http", "redis").replace("/v1", "/0"))
    figures = parsed_metrics(db)
    assert value(figures, "broker_up") == 0
    assert value(figures, "queue_messages", queue="score") is None
    assert value(figures, "blocks_total") == 0


def test_model_servers_are_reported_and_the_simulation_is_marked(
    db: Database, redis_url: str, sim: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", sim.url)
    with db.begin() as conn:
        own = [sim.url]
        servers.add(conn, "http://127.0.0.1:9/v1", 'ada "the" \\lender\\', "weavegen-sim", own, own, moves)
    figures = parsed_metrics(db)
    about = {"server": sim.url, "owner": "", "model": "weavegen-sim", "simulated": "true"}
    assert value(figures, "server_info", **about) == 1
    assert value(figures, "server_up", server=sim.url) == 1
    assert value(figures, "server_kv_cache_usage_ratio", server=sim.url) == 0
    assert value(figures, "server_up", server="http://127.0.0.1:9/v1") == 0
    away = {"server": "http://127.0.0.1:9/v1", "owner": 'ada "the" \\lender\\', "model": "", "simulated": ""}
    assert value(figures, "server_info", **away) == 1


def test_no_large_table_is_read_completely(corpus: Database) -> None:
    everything = metrics.QUERIES | {"open_steps": sql.load("monitoring/open_steps")}
    assert {"traces", "queues", "open_steps", "steps", "errors"} <= everything.keys()
    with corpus.connect() as conn:
        # The sample is so small that the planner would prefer to read whole tables.
        conn.execute(Statement("set local enable_seqscan = off"))
        for name, query in everything.items():
            plan = "\n".join(conn.execute(Statement(f"explain {query.text}")).scalars())
            assert not re.search(rf"Seq Scan on ({'|'.join(LARGE)})\b", plan), f"{name}\n{plan}"
            for scan in re.findall(rf"Scan using (\w+) on (?:{'|'.join(LARGE)})\b", plan):
                assert scan == "ix_steps_open", f"{name}\n{plan}"


def test_the_document_lists_all_metrics(
    corpus: Database, redis_url: str, sim: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", sim.url)
    with corpus.begin() as conn:
        workers.report(conn, "here:1", "model@here", [], {})
        failed = {"kind": "status", "errors": 1, "since_ok": 1, "error": "answered 500", "age": 0.0}
        sql.run(conn, "store/server_failed", url=sim.url, **failed)
    try:
        there = labels_of(parsed_metrics(corpus))
    finally:
        with corpus.begin() as conn:
            conn.execute(Statement("truncate workers, server_health"))
    there["weavegen_service_restarts_total"] = {"service"}  # no service runs here
    listed = {
        name: set(filter(None, labels.replace(",", " ").split()))
        for name, labels in re.findall(r"^\| `(weavegen_\w+)`(?: ∘)? \| ([\w, ]*)\|", DOCUMENT, re.MULTILINE)
    }
    assert listed == there


def test_names_follow_prometheus_conventions(corpus: Database, redis_url: str, no_server: str) -> None:
    with corpus.connect() as conn:
        families = list(text_string_to_metric_families(metrics.text(conn)))
    for family in families:
        assert re.fullmatch(r"weavegen_[a-z_]+[a-z]", family.name)
        assert family.documentation
        assert family.type in ("counter", "gauge")
        for sample in family.samples:
            assert (family.type == "counter") == sample.name.endswith("_total")
            assert not sample.labels.keys() & {"trace", "trace_id", "tick", "step", "id"}


def expressions(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("expr"), str):
            yield part["expr"]
        for inner in part.values():
            yield from expressions(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from expressions(inner)


def test_the_dashboard_uses_existing_metrics() -> None:
    listed = {
        name: set(filter(None, labels.replace(",", " ").split()))
        for name, labels in re.findall(r"^\| `(weavegen_\w+)`(?: ∘)? \| ([\w, ]*)\|", DOCUMENT, re.MULTILINE)
    }
    queries = list(expressions(DASHBOARD))
    asked = set()
    for query in queries:
        names = set(re.findall(r"weavegen_\w+", query))
        assert names, query
        assert names <= listed.keys(), query
        grouped = {label for found in re.findall(r"by \(([\w, ]+)\)", query) for label in found.split(", ")}
        filtered = set(re.findall(r"[{,](\w+)=", query))
        for name in names:
            assert grouped | filtered <= listed[name], query
            assert ("rate(" in query or "increase(" in query) == name.endswith("_total"), query
        asked |= names
    assert listed.keys() - asked == {"weavegen_build_info", "weavegen_jobs", "weavegen_scrape_errors"}
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(numbers) == len(set(numbers)) > 30


def test_the_legends_of_the_dashboard_are_labels() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            if legend - {"server", "view", "table", "part"}:
                assert all(f"by ({label})" in target["expr"] for label in legend), panel["title"]


def test_the_command(corpus: Database, home: Path, redis_url: str, no_server: str) -> None:
    url = corpus.url
    runner = CliRunner(env={"DATABASE_URL": url, "WEAVEGEN_HOME": str(home)})
    assert "\nweavegen_blocks_total 3000.0\n" in runner.invoke(app, ["metrics"], catch_exceptions=False).stdout
    rows = json.loads(runner.invoke(app, ["metrics", "--json"], catch_exceptions=False).stdout)
    assert {"name": "weavegen_blocks_total", "labels": {}, "value": 3000.0} in rows
    with socket.create_server(("127.0.0.1", 0)) as taken:
        failed = runner.invoke(app, ["metrics", "--listen", str(taken.getsockname()[1])])
    assert isinstance(failed.exception, UsageError)
    assert "can't listen on" in str(failed.exception)


def test_prometheus_can_scrape(corpus: Database, home: Path, redis_url: str, no_server: str) -> None:
    url = corpus.url
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    words = [sys.executable, "-m", "weavegen.cli", "metrics", "--listen", str(port)]
    environ = os.environ | {"DATABASE_URL": url, "WEAVEGEN_HOME": str(home)}
    with subprocess.Popen(words, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        assert address == f"http://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert answer.headers["Content-Type"] == metrics.CONTENT_TYPE
            assert b"\nweavegen_blocks_total 3000.0\n" in answer.read()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60)
        assert refused.value.code == 404
        refused.value.close()
        server.terminate()
        assert server.stdout.read() == "stopped\n"
        assert server.wait(timeout=60) == 0


def test_a_scrape_without_the_database_is_answered(corpus: Database) -> None:
    broken = unpooled(corpus.url.replace(urls.parts(corpus.url)["dbname"], "no_such_database"))
    assert metrics.answer(broken)[0] == 503


def test_a_scrape_leaves_out_only_the_figures_that_it_can_not_read(
    db: Database, redis_url: str, no_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while a migration makes the views, or while a query is slow."""
    with db.begin() as conn:
        conn.execute("drop materialized view step_times cascade")
    monkeypatch.setitem(metrics.QUERIES, "rows", Statement("select pg_sleep(60)"))
    monkeypatch.setattr(metrics, "QUERY_TIMEOUT_SECONDS", 0.5)
    status, text = metrics.answer(db)
    assert status == 200
    assert "weavegen_faults{kind=" in text
    assert "weavegen_model_seconds_total" not in text
    assert set(re.findall(r'weavegen_scrape_errors{group="(\w+)"} 1.0', text)) == {"rows", "steps"}
    assert 'weavegen_scrape_errors{group="traces"} 0.0' in text
