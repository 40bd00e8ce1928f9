"""Finished ticks as OpenTelemetry traces: one for each tick, with a span for each step of the journal.

They are read from the journal afterwards, so the engine knows nothing of them and waits for nobody. Ids derive
from what a span is about: what is sent twice is the same span. The format is OTLP's JSON over HTTP
(https://opentelemetry.io/docs/specs/otlp/), which collectors take at /v1/traces.
"""

import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from weavegen import __version__
from weavegen.config import SIMULATED_MODEL

BATCH = 200
"""Ticks that are read, and sent, at a time."""
SETTLED = 10.0
"""Seconds after its end when a tick is read: by then whatever ended before it is committed, too."""
INTERNAL, CLIENT = 1, 3
"""Kinds of spans: own work, and waiting for a server."""
ERROR = 2
"""Status of a span."""

TICKS = f"""
select k.id, k.trace_id, k.number, k.run, k.subagent, k.reward, k.finished_at, t.job_id, j.name as job, j.agent,
  j.model, f.name as bootstrap
from ticks k join traces t on t.id = k.trace_id join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
where (k.finished_at, k.id) > (:at, :id) and k.finished_at < clock_timestamp() - interval '{SETTLED} seconds'
  and (cast(:job as bigint) is null or t.job_id = :job)
order by k.finished_at, k.id limit {BATCH}
"""
STEPS = """
select s.id, s.trace_id, s.tick, s.run, s.ordinal, s.kind, s.label, s.status, s.queue, s.worker, s.claims,
  s.failure_kind, s.failure, s.ready_at, s.claimed_at, s.finished_at, s.model_seconds, s.environment_seconds
from steps s join unnest(cast(:traces as bigint[]), cast(:numbers as bigint[]), cast(:runs as bigint[]))
  as k (trace_id, tick, run) on k.trace_id = s.trace_id and k.tick = s.tick and k.run = s.run
where s.copy_of is null and s.finished_at is not null
order by s.trace_id, s.tick, s.ordinal
"""


@dataclass(frozen=True)
class Cursor:
    """Up to where ticks were read."""

    at: datetime.datetime
    """When the last one ended."""
    id: int = 0
    """ticks.id of it."""


@dataclass(frozen=True)
class Batch:
    """Ticks to send."""

    document: dict[str, Any]
    """An ExportTraceServiceRequest of OTLP, as JSON has it."""
    ticks: int
    spans: int


def finished(conn: sa.Connection, cursor: Cursor, job: int | None = None) -> tuple[Batch | None, Cursor]:
    """The next ticks that ended, of one job or of all, and how far that is. None: there are no more for now."""
    ticks = conn.execute(sa.text(TICKS), {"at": cursor.at, "id": cursor.id, "job": job}).all()
    if not ticks:
        return None, cursor
    columns = {"traces": "trace_id", "numbers": "number", "runs": "run"}
    keys = {name: [getattr(row, column) for row in ticks] for name, column in columns.items()}
    steps: dict[tuple[int, int], list[Any]] = {}
    for step in conn.execute(sa.text(STEPS), keys):
        steps.setdefault((step.trace_id, step.tick), []).append(step)
    spans = [span for tick in ticks for span in tick_spans(tick, steps.get((tick.trace_id, tick.number), []))]
    return Batch(request(spans), len(ticks), len(spans)), Cursor(ticks[-1].finished_at, ticks[-1].id)


def request(spans: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a collector is sent."""
    resource = {"attributes": attributes({"service.name": "weavegen", "service.version": __version__})}
    scope = {"name": "weavegen.monitoring.spans", "version": __version__}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": list(spans)}]}]}


def tick_spans(tick: Any, steps: Sequence[Any]) -> list[dict[str, Any]]:
    """A tick's span and those of its steps; none where it has none of its own, as in a fork what was copied."""
    if not steps:
        return []
    # A job's seed and name may repeat; when a step was made ready does not.
    about = f"{tick.trace_id} {tick.number} {tick.run} {min(one.ready_at for one in steps).isoformat()}"
    trace, root = identity("trace " + about, 16), identity("tick " + about, 8)
    whole = {
        "traceId": trace,
        "spanId": root,
        "name": f"tick {tick.agent}",
        "kind": INTERNAL,
        "startTimeUnixNano": nanoseconds(min(one.ready_at for one in steps)),
        "endTimeUnixNano": nanoseconds(max(tick.finished_at, *(one.finished_at for one in steps))),
        "attributes": attributes(
            {
                "weavegen.job": tick.job_id,
                "weavegen.job.name": tick.job,
                "weavegen.trace": tick.trace_id,
                "weavegen.tick": tick.number,
                "weavegen.subagent": tick.subagent,
                "weavegen.bootstrap": tick.bootstrap,
                "weavegen.reward": tick.reward,
                "weavegen.simulated": tick.model == SIMULATED_MODEL,
                "gen_ai.request.model": tick.model,
            }
        ),
    }
    return [whole, *(step_span(step, trace, root) for step in steps)]


def step_span(step: Any, trace: str, parent: str) -> dict[str, Any]:
    """A step, from its being ready to its end; when a worker took it is an event."""
    # The label begins with trace and tick, which the span's parent says.
    what = " ".join(step.label.split()[4:6])
    span: dict[str, Any] = {
        "traceId": trace,
        "spanId": identity(f"step {trace} {step.id}", 8),
        "parentSpanId": parent,
        "name": f"{step.kind} {what}".strip(),
        "kind": CLIENT if step.model_seconds else INTERNAL,
        "startTimeUnixNano": nanoseconds(step.ready_at),
        "endTimeUnixNano": nanoseconds(step.finished_at),
        "attributes": attributes(
            {
                "weavegen.step": step.id,
                "weavegen.label": step.label,
                "weavegen.status": step.status,
                "weavegen.queue": step.queue,
                "weavegen.worker": step.worker,
                "weavegen.claims": step.claims,
                "weavegen.model_seconds": step.model_seconds,
                "weavegen.environment_seconds": step.environment_seconds,
            }
        ),
    }
    if step.claimed_at is not None:
        span["events"] = [{"name": "taken by a worker", "timeUnixNano": nanoseconds(step.claimed_at)}]
    if step.status == "failed":
        span["status"] = {"code": ERROR, "message": f"{step.failure_kind}: {step.failure}"}
    return span


def identity(about: str, size: int) -> str:
    """An id of so many bytes, hexadecimal."""
    return hashlib.sha256(about.encode()).hexdigest()[: 2 * size]


def nanoseconds(at: datetime.datetime) -> str:
    """Since the epoch. A 64-bit number is text in JSON."""
    past = at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return str((past.days * 86_400 + past.seconds) * 10**9 + past.microseconds * 1_000)


def attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    """What is known, as OTLP has it."""
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value is not None]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}
