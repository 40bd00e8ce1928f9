"""Ticks as OpenTelemetry traces: their contents, none twice or missing, and a collector that refuses."""

import datetime
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.collector import Collector, all_spans, hexadecimal
from tests.support.worker import Worker, enqueue, scalar
from weavegen.cli.app import app
from weavegen.database import Database, Statement
from weavegen.errors import UsageError
from weavegen.monitoring import spans

BEGIN = spans.Cursor(datetime.datetime.fromtimestamp(0, datetime.UTC))


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def written(db: Database) -> Database:
    """A database with two traces whose ticks ended a minute ago."""
    enqueue(db, 2, seed=3, ticks=3)
    worker = Worker(db, seed=3)
    worker.run(worker.engine.start_queued())
    with db.begin() as conn:
        conn.execute(Statement("update ticks set finished_at = finished_at - interval '1 minute'"))
    return db


def attributes_of(span: dict[str, Any]) -> dict[str, Any]:
    """Attributes of a span."""
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def test_every_tick_is_a_trace_with_a_span_for_every_step(written: Database) -> None:
    with written.connect() as conn:
        batch, ticks, after = spans.finished(conn, BEGIN)
        assert spans.finished(conn, after) == ([], 0, after)
        again, *_ = spans.finished(conn, BEGIN)
        assert spans.document(again) == spans.document(batch)
    found = all_spans(spans.document(batch))
    roots = {span["spanId"]: span for span in found if "parentSpanId" not in span}
    assert len(roots) == ticks == scalar(written, "select count(*) from ticks where finished_at is not null")
    assert len({span["traceId"] for span in roots.values()}) == len(roots)
    steps = [span for span in found if "parentSpanId" in span]
    done = "select count(*) from steps where finished_at is not null"
    assert len(steps) == len(batch) - ticks == scalar(written, done)
    assert len({span["spanId"] for span in found}) == len(found)
    for span in found:
        assert len(bytes.fromhex(span["traceId"])) == 16
        assert len(bytes.fromhex(span["spanId"])) == 8
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
    for span in steps:
        parent = roots[span["parentSpanId"]]
        assert span["traceId"] == parent["traceId"]
        assert int(parent["startTimeUnixNano"]) <= int(span["startTimeUnixNano"])
        assert int(span["endTimeUnixNano"]) <= int(parent["endTimeUnixNano"])
        assert attributes_of(span)["weavegen.label"].startswith(
            f"trace {attributes_of(parent)['weavegen.trace']} tick {attributes_of(parent)['weavegen.tick']}"
        )
    assert {"sample action", "score action", "lint action", "execute_tool run"} <= {span["name"] for span in steps}


def test_attributes_follow_the_conventions_for_generative_ai(written: Database) -> None:
    with written.begin() as conn:
        conn.execute(Statement("update jobs set model = 'weavegen-sim'"))
        conn.execute(Statement("update prompts set tokens = 100"))
        batch, *_ = spans.finished(conn, BEGIN)
    found = all_spans(spans.document(batch))
    sampled = input_tokens = 0
    for span in found:
        values = attributes_of(span)
        operation = values.get("gen_ai.operation.name")
        kind = values.get("weavegen.kind")
        if kind is None:
            assert (operation, span["name"]) == ("invoke_agent", "invoke_agent weave")
            assert values["gen_ai.agent.name"] == "weave"
            assert values["gen_ai.conversation.id"] == values["weavegen.trace"]
            sampled += int(values.get("gen_ai.usage.output_tokens", 0))
            input_tokens += int(values.get("gen_ai.usage.input_tokens", 0))
        elif kind == "execute":
            assert (operation, span["name"]) == ("execute_tool", f"execute_tool {values['gen_ai.tool.name']}")
        else:
            assert operation == ("text_completion" if kind in ("sample", "score") else None)
        if operation in ("invoke_agent", "text_completion"):
            assert values["gen_ai.provider.name"] == "weavegen.simulation"
            assert values["gen_ai.request.model"] == "weavegen-sim"
    assert sampled == scalar(written, "select sum(tokens) from candidates")
    assert input_tokens == 100 * scalar(written, "select count(*) from prompts")


def test_a_request_has_the_model_that_was_asked(written: Database) -> None:
    with written.begin() as conn:
        conn.execute(Statement("update jobs set model = 'writer', evaluator = 'weavegen-sim'"))
        asked = "insert into prompts (trace_id, step_id, server, model, first_block) "
        asked += "select trace_id, id, 'http://s', case when kind = 'score' then 'weavegen-sim' else 'writer' end, 0 "
        conn.execute(Statement(f"{asked} from steps where kind in ('sample', 'score')"))
        batch, *_ = spans.finished(conn, BEGIN)
    models = {
        (values.get("weavegen.kind"), values["gen_ai.provider.name"], values["gen_ai.request.model"])
        for values in map(attributes_of, all_spans(spans.document(batch)))
        if "gen_ai.request.model" in values
    }
    writer = ("vllm", "writer")
    assert models == {(None, *writer), ("sample", *writer), ("score", "weavegen.simulation", "weavegen-sim")}


def test_what_another_agent_is_asked_is_left_out(written: Database) -> None:
    with written.begin() as conn:
        delegated = "update steps set kind = 'delegate', label = 'trace 1 tick 1 research: What did the king say?' "
        conn.execute(Statement(f"{delegated} where id = (select max(id) from steps where trace_id = 1 and tick = 1)"))
        batch, *_ = spans.finished(conn, BEGIN)
    document = spans.document(batch)
    [span] = [span for span in all_spans(document) if span["name"].startswith("delegate")]
    assert (span["name"], attributes_of(span)["weavegen.label"]) == ("delegate research", "trace 1 tick 1 research")
    assert "king" not in json.dumps(document)


def test_results_of_evaluations_are_events(written: Database) -> None:
    with written.begin() as conn:
        conn.execute(Statement("update evaluations set value = 'true' where position = 0"))
        batch, *_ = spans.finished(conn, BEGIN)
    events = [
        (span["name"], attributes_of(event))
        for span in all_spans(spans.document(batch))
        for event in span.get("events", ())
        if event["name"] == "gen_ai.evaluation.result"
    ]
    assert len(events) == scalar(written, "select count(*) from evaluations") > 0
    with written.connect() as conn:
        titles = set(conn.execute(Statement("select distinct title from evaluations")).scalars())
    assert {event["gen_ai.evaluation.name"] for _, event in events} == titles
    held = [event for _, event in events if event.get("gen_ai.evaluation.score.label") == "pass"]
    assert held
    assert all(event["gen_ai.evaluation.score.value"] == 1 for event in held)
    assert all(name.startswith("execute_tool") for name, _ in events)


def test_batches_are_complete(written: Database) -> None:
    with written.begin() as conn:
        # Ticks that end at the same moment: the cursor distinguishes them.
        conn.execute(Statement("update ticks set finished_at = (select min(finished_at) from ticks)"))
    ticks, cursor = 0, BEGIN
    with written.connect() as conn:
        while (found := spans.finished(conn, cursor, limit=3))[1]:
            assert found[1] <= 3
            ticks, cursor = ticks + found[1], found[2]
    assert ticks == scalar(written, "select count(*) from ticks")


def test_recently_ended_ticks_wait(written: Database) -> None:
    with written.begin() as conn:
        conn.execute(Statement("update ticks set finished_at = clock_timestamp()"))
    with written.connect() as conn:
        assert spans.finished(conn, BEGIN) == ([], 0, BEGIN)


def test_selecting_one_job_and_failed_steps(written: Database) -> None:
    with written.begin() as conn:
        step = conn.execute(Statement("select max(id) from steps where status = 'done'")).scalar_one()
        query = "update steps set status = 'failed', failure_kind = 'model', failure = 'too long' where id = :step"
        conn.execute(Statement(query), {"step": step})
        conn.execute(Statement("update jobs set model = 'weavegen-sim'"))
    with written.connect() as conn:
        assert spans.finished(conn, BEGIN, job=99) == ([], 0, BEGIN)
        batch, *_ = spans.finished(conn, BEGIN, job=1)
    failed = [span for span in all_spans(spans.document(batch)) if span.get("status")]
    assert [(attributes_of(span)["weavegen.step"], span["status"]) for span in failed] == [
        (str(step), {"code": 2, "message": "model: too long"})
    ]
    assert attributes_of(all_spans(spans.document(batch))[0])["weavegen.simulated"] is True


def test_times_are_exact() -> None:
    at = datetime.datetime(2026, 3, 1, 12, 0, 0, 123457, datetime.UTC)
    assert spans.nanoseconds(at) == 1772366400123457000


def test_the_command(written: Database, home: Path, collector: Collector) -> None:
    url = written.url
    place = f"http://127.0.0.1:{collector.server_port}"
    environ = {"DATABASE_URL": url, "WEAVEGEN_HOME": str(home)}
    environ |= {"OTEL_EXPORTER_OTLP_HEADERS": "tenant=ada", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    runner = CliRunner(env=environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": place + "/"})
    said = runner.invoke(app, ["spans"], catch_exceptions=False).stdout
    assert f"in {len(collector.spans)} spans" in said
    assert len(collector.spans) > 50
    said = runner.invoke(app, ["spans", "--hours", "0"], catch_exceptions=False).stdout
    assert "0 ticks sent in 0 spans" in said
    printed = runner.invoke(app, ["spans", "--json"], catch_exceptions=False).stdout
    assert all_spans(json.loads(printed)) == [hexadecimal(span) for span in collector.spans]
    assert collector.tenants == {"ada"}
    for status, message in ((503, "does not answer"), (400, "refuses spans")):
        collector.status = status
        failed = runner.invoke(app, ["spans"])
        assert isinstance(failed.exception, UsageError)
        assert message in str(failed.exception)
    failed = CliRunner(env=environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}).invoke(app, ["spans"])
    assert isinstance(failed.exception, UsageError)
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in str(failed.exception)
