"""Finished ticks as OpenTelemetry traces: one trace per tick, with a span for each step of the journal.

Spans are made from the journal afterwards, so that tracing costs the engine nothing. Ids are hashes of what a
span is about: a tick that is sent twice is the same trace. Attributes follow OpenTelemetry's semantic
conventions for generative AI (https://opentelemetry.io/docs/specs/semconv/gen-ai/).
"""

import base64
import datetime
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from weavegen import sql
from weavegen.config import SIMULATED_MODEL
from weavegen.version import __version__

BATCH_TICKS = 200
"""Ticks that are read and sent at a time."""
SETTLED_SECONDS = 10.0
"""A tick is read so long after its end: ticks that ended before it are committed by then."""
SOURCE: dict[str, Any] = {
    "resource": Resource({"service.name": "weavegen", "service.version": __version__}),
    "instrumentation_scope": InstrumentationScope("weavegen.monitoring.spans", __version__),
}
"""What all spans have in common."""
PROVIDERS = {SIMULATED_MODEL: "weavegen.simulation", "weavegen-nano": "weavegen.nano"}
"""gen_ai.provider.name by model; vllm for all other models, none for an unknown one."""
OPERATIONS = {"sample": "text_completion", "score": "text_completion", "execute": "execute_tool"}
"""gen_ai.operation.name by kind of step."""


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
    conn: sa.Connection, cursor: Cursor, job: int | None = None, limit: int = BATCH_TICKS
) -> tuple[list[ReadableSpan], int, Cursor]:
    """Spans of the next ticks that ended, of one job or of all; how many ticks these are; the cursor after them."""
    after = {"at": cursor.at, "id": cursor.id, "job": job, "settled": SETTLED_SECONDS, "limit": limit}
    ticks = conn.execute(sql.load("monitoring/spans/ticks"), after).all()
    if not ticks:
        return [], 0, cursor
    columns = {"traces": "trace_id", "numbers": "number", "runs": "run"}
    keys = {name: [getattr(row, column) for row in ticks] for name, column in columns.items()}
    rows = conn.execute(sql.load("monitoring/spans/steps"), keys).all()
    steps: dict[tuple[int, int], list[Any]] = {}
    for step in rows:
        steps.setdefault((step.trace_id, step.tick), []).append(step)
    evaluations: dict[int, list[Any]] = {}
    for evaluation in conn.execute(sql.load("monitoring/spans/evaluations"), {"steps": [row.id for row in rows]}):
        evaluations.setdefault(evaluation.step_id, []).append(evaluation)
    spans = [
        span for tick in ticks for span in tick_spans(tick, steps.get((tick.trace_id, tick.number), []), evaluations)
    ]
    return spans, len(ticks), Cursor(ticks[-1].finished_at, ticks[-1].id)


def tick_spans(tick: Any, steps: Sequence[Any], evaluations: Mapping[int, Sequence[Any]]) -> list[ReadableSpan]:
    """The span of a tick and the spans of its steps. A tick that a fork copied has no steps, and no spans."""
    if not steps:
        return []
    # Traces of a restored or another database can have the same numbers; the moment tells them apart.
    about = f"{tick.trace_id} {tick.number} {tick.run} {min(step.ready_at for step in steps).isoformat()}"
    root = context(identity("trace " + about, 16), identity("tick " + about, 8))
    model = {
        "gen_ai.provider.name": PROVIDERS.get(tick.model, "vllm") if tick.model else None,
        "gen_ai.request.model": tick.model,
    }
    attributes = (
        named(tick)
        | model
        | {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.usage.input_tokens": total(step.input_tokens for step in steps),
            "gen_ai.usage.output_tokens": total(step.output_tokens for step in steps),
            "weavegen.simulated": tick.model == SIMULATED_MODEL,
        }
    )
    whole = ReadableSpan(
        f"invoke_agent {tick.agent}",
        context=root,
        attributes=known(attributes),
        start_time=nanoseconds(min(step.ready_at for step in steps)),
        end_time=nanoseconds(max(tick.finished_at, *(step.finished_at for step in steps))),
        **SOURCE,
    )
    return [whole, *(step_span(step, root, model, evaluations.get(step.id, ())) for step in steps)]


def step_span(step: Any, parent: SpanContext, model: dict[str, Any], evaluations: Sequence[Any]) -> ReadableSpan:
    """A step, from when it is ready to its end. Its claim by a worker and results of evaluations are events."""
    # The label begins with trace and tick, which are attributes of the parent.
    what = " ".join(step.label.split()[4:6])
    operation = OPERATIONS.get(step.kind)
    attributes = named(step) | {"gen_ai.operation.name": operation}
    if operation == "text_completion":
        attributes |= model | {
            "gen_ai.usage.input_tokens": step.input_tokens,
            "gen_ai.usage.output_tokens": step.output_tokens,
        }
    if operation == "execute_tool":
        attributes["gen_ai.tool.name"] = what
    failed = step.status == "failed"
    if failed:
        attributes["error.type"] = step.failure_kind
    events = [] if step.claimed_at is None else [Event("taken by a worker", {}, nanoseconds(step.claimed_at))]
    events += [evaluation_event(row, nanoseconds(step.finished_at)) for row in evaluations]
    return ReadableSpan(
        f"{'execute_tool' if step.kind == 'execute' else step.kind} {what}".strip(),
        context=context(parent.trace_id, identity(f"step {parent.trace_id:032x} {step.id}", 8)),
        parent=parent,
        attributes=known(attributes),
        events=events,
        kind=SpanKind.CLIENT if step.model_seconds else SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, f"{step.failure_kind}: {step.failure}") if failed else Status(),
        start_time=nanoseconds(step.ready_at),
        end_time=nanoseconds(step.finished_at),
        **SOURCE,
    )


def evaluation_event(row: Any, at: int) -> Event:
    """The result of an evaluation callback. Results that are neither a number nor true or false have no score."""
    value = row.value
    attributes = named(row) | {
        "gen_ai.evaluation.score.value": float(value) if isinstance(value, bool | int | float) else None,
        "gen_ai.evaluation.score.label": ("pass" if value else "fail") if isinstance(value, bool) else None,
        "error.type": None if row.error is None else "evaluation_error",
    }
    return Event("gen_ai.evaluation.result", known(attributes), at)


def context(trace: int, span: int) -> SpanContext:
    return SpanContext(trace, span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def identity(about: str, size: int) -> int:
    """An id of so many bytes, which depends on the text alone."""
    return int.from_bytes(hashlib.sha256(about.encode()).digest()[:size], "big")


def nanoseconds(at: datetime.datetime) -> int:
    """Since the epoch, without the rounding of a float."""
    past = at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (past.days * 86_400 + past.seconds) * 10**9 + past.microseconds * 1_000


def total(counts: Any) -> int | None:
    """The sum of the known counts; None if none is known."""
    numbers = [count for count in counts if count is not None]
    return sum(numbers) if numbers else None


def named(row: Any) -> dict[str, Any]:
    """The columns of a row that are attributes: their names have a dot."""
    return {name: value for name, value in row._mapping.items() if "." in name}


def known(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that have a value."""
    return {name: value for name, value in attributes.items() if value is not None}
