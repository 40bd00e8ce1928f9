"""Finished ticks as OpenTelemetry traces: one trace per tick, with a span for each step of the journal.

Spans are made from the journal afterwards, so that tracing costs the engine nothing. Ids are hashes of what a
span is about: a tick that is sent twice is the same trace. Attributes follow OpenTelemetry's semantic
conventions for generative AI (https://opentelemetry.io/docs/specs/semconv/gen-ai/).
"""

import base64
import datetime
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from weavegen import sql
from weavegen.config import SIMULATED_MODEL
from weavegen.database import Connection, Result
from weavegen.version import __version__

BATCH_TICKS = 200
"""Ticks that are read and sent at a time."""
SETTLED_SECONDS = 10.0
"""A tick is read this long after its end, when all ticks that ended before it are committed."""
SOURCE: dict[str, Any] = {
    "resource": Resource({"service.name": "weavegen", "service.version": __version__}),
    "instrumentation_scope": InstrumentationScope("weavegen.monitoring.spans", __version__),
}
"""What all spans have in common."""
PROVIDERS = {SIMULATED_MODEL: "weavegen.simulation", "weavegen-nano": "weavegen.nano"}
"""Providers of models that come with weavegen. vLLM provides the others."""
MODEL = ("gen_ai.provider.name", "gen_ai.request.model")
"""Attributes of a tick that are repeated on its requests to a model, unless it is known which model was asked."""
IDS = ("traceId", "spanId", "parentSpanId")


@dataclass(frozen=True)
class Cursor:
    """The last tick that was read."""

    at: datetime.datetime
    """When it ended."""
    id: int = 0
    """Its ticks.id."""


def document(spans: Sequence[ReadableSpan]) -> dict[str, Any]:
    """The request that a collector gets, as OTLP's JSON."""
    from google.protobuf.json_format import MessageToDict

    document: dict[str, Any] = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
    for of_resource in document["resourceSpans"]:
        for of_scope in of_resource["scopeSpans"]:
            for span in of_scope["spans"]:
                # OTLP's JSON has ids in hexadecimal, protobuf's in base64.
                span |= {name: base64.b64decode(span[name]).hex() for name in IDS if name in span}
    return document


def finished(
    conn: Connection, cursor: Cursor, job: int | None = None, limit: int = BATCH_TICKS
) -> tuple[list[ReadableSpan], int, Cursor]:
    """Spans of the next ticks that ended, of one job or of all; how many ticks these are; the cursor after them."""
    after = {"at": cursor.at, "id": cursor.id, "job": job, "settled": SETTLED_SECONDS, "limit": limit}
    ticks = records(sql.run(conn, "monitoring/spans/ticks", simulated=SIMULATED_MODEL, **after))
    if not ticks:
        return [], 0, cursor
    keys = {f"{name}s": [getattr(row, name) for row in ticks] for name in ("trace_id", "number", "run")}
    rows = records(sql.run(conn, "monitoring/spans/steps", **keys))
    steps: defaultdict[tuple[int, int], list[Any]] = defaultdict(list)
    for step in rows:
        steps[step.trace_id, step.tick].append(step)
    evaluations: defaultdict[int, list[Any]] = defaultdict(list)
    for evaluation in records(sql.run(conn, "monitoring/spans/evaluations", steps=[row.id for row in rows])):
        evaluations[evaluation.step_id].append(evaluation)
    spans = [span for tick in ticks for span in tick_spans(tick, steps[tick.trace_id, tick.number], evaluations)]
    return spans, len(ticks), Cursor(ticks[-1].finished_at, ticks[-1].id)


def records(result: Result) -> list[SimpleNamespace]:
    """Rows whose columns may have a dot in their names."""
    return [SimpleNamespace(**row) for row in result.mappings()]


def tick_spans(tick: Any, steps: Sequence[Any], evaluations: Mapping[int, Sequence[Any]]) -> Iterator[ReadableSpan]:
    """The span of a tick and the spans of its steps. A tick that a fork copied has none."""
    if tick.began is None:
        return
    # Traces of a restored or another database can have the same numbers; the moment tells them apart.
    about = f"{tick.trace_id} {tick.number} {tick.run} {tick.began.isoformat()}"
    root = context(identity("trace " + about, 16), identity("tick " + about, 8))
    attributes = known(tick)
    began, ended = nanoseconds(tick.began), nanoseconds(tick.ended)
    yield ReadableSpan(tick.name, context=root, attributes=attributes, start_time=began, end_time=ended, **SOURCE)
    model = {name: attributes[name] for name in MODEL if name in attributes}
    for step in steps:
        yield step_span(step, root, model, evaluations[step.id])


def step_span(step: Any, parent: SpanContext, model: dict[str, Any], evaluations: Sequence[Any]) -> ReadableSpan:
    """A step, from when it is ready to its end. Its claim by a worker and results of evaluations are events."""
    attributes = known(step)
    if attributes.get("gen_ai.operation.name") == "text_completion":
        attributes = model | attributes
    end, failed = nanoseconds(step.finished_at), step.status == "failed"
    events = [] if step.claimed_at is None else [Event("taken by a worker", {}, nanoseconds(step.claimed_at))]
    events += [Event("gen_ai.evaluation.result", known(row), end) for row in evaluations]
    return ReadableSpan(
        step.name,
        context=context(parent.trace_id, identity(f"step {parent.trace_id:032x} {step.id}", 8)),
        parent=parent,
        attributes=attributes,
        events=events,
        kind=SpanKind.CLIENT if step.model_seconds else SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, f"{step.failure_kind}: {step.failure}") if failed else Status(),
        start_time=nanoseconds(step.ready_at),
        end_time=end,
        **SOURCE,
    )


def context(trace: int, span: int) -> SpanContext:
    return SpanContext(trace, span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def identity(about: str, size: int) -> int:
    """An id of `size` bytes, which depends only on the text."""
    return int.from_bytes(hashlib.sha256(about.encode()).digest()[:size], "big")


def nanoseconds(at: datetime.datetime) -> int:
    """Since the epoch, without the rounding of a float."""
    past = at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (past.days * 86_400 + past.seconds) * 10**9 + past.microseconds * 1_000


def known(row: Any) -> dict[str, Any]:
    """The attributes of a row, as far as they are known: columns whose names have a dot, and the model's provider."""
    attributes = {name: value for name, value in vars(row).items() if "." in name and value is not None}
    if (model := attributes.get("gen_ai.request.model")) is not None:
        attributes["gen_ai.provider.name"] = PROVIDERS.get(model, "vllm")
    return attributes
