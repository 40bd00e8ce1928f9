"""Forks in Postgres: where a trace stood when it came to a block, and copies of what it had until then.

A fork gets copies of what its own program and environment need: blocks, ticks, executed steps with their results,
messages, and the whole journal of the ticks that were open. Candidates, scores, prompts and costs stay with the
trace that sampled them, so they count once; steps.copy_of points there. Results that the journal no longer has
are read from those tables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weavegen import config, sql
from weavegen.database import Connection
from weavegen.errors import required
from weavegen.kernel import replay
from weavegen.kernel.replay import Entry, InheritedSettings, Start
from weavegen.kernel.seeds import derive_seed
from weavegen.kernel.steps import Candidate, Penalties, Verdict, YesNo
from weavegen.store import jobs, steps
from weavegen.store import traces as trace_rows
from weavegen.store.states import StepStatus
from weavegen.trace.blocks import BlockType


@dataclass(frozen=True)
class Place:
    """A tick of the trace, with the steps of its newest run."""

    tick: int
    revision: int
    """Revision of the job's settings."""
    paused_seconds: float
    start: Start
    steps: Sequence[Any]
    """Rows (id, ordinal, kind, status, request, result, at, origin)."""


@dataclass(frozen=True)
class Cut:
    """A point between two steps of a trace."""

    trace_id: int
    at: int
    """Index of the first new block."""
    tick: int
    """The tick that goes on, or begins."""
    callers: tuple[int, ...]
    """Ticks whose actions wait for the subagent of `tick`, the innermost first."""
    before: int | None
    """The first step after the cut; None: there is none yet."""
    clock: float
    """The trace's clock at the cut; seconds since the epoch."""
    paused_seconds: float
    """How long the job had been paused when the tick began."""

    @property
    def open(self) -> list[int]:
        """The ticks that are open at the cut."""
        return [self.tick, *self.callers]


def trace(conn: Connection, trace_id: int) -> Any:
    """A trace that is to be forked, a row of forked_trace.sql. Raises UsageError if there is none."""
    row = sql.run(conn, "store/forked_trace", trace=trace_id).one_or_none()
    return required(row, f"there is no trace {trace_id}: `weavegen status JOB` lists a job's traces")


def fork_point(conn: Connection, trace_id: int) -> tuple[int, int] | None:
    """The trace and the block that a fork continues from. None: the trace is not a fork.

    The other trace is locked, so that it does not advance, until the transaction ends.
    """
    row = sql.run(conn, "store/fork_point", trace=trace_id).one_or_none()
    return None if row is None else (row.id, row.fork_at)


def place(conn: Connection, trace: Any, at: int) -> Place | None:
    """The tick that block `at` belongs to, or would belong to. None: the trace ended before it."""
    row = sql.run(conn, "store/fork_tick", trace=trace.id, at=at).one_or_none()
    if row is None:
        return None
    rows = steps.tick_rows(conn, trace.id, row.number, row.run)
    return Place(row.number, row.revision, row.paused_seconds, trace_rows.start(row), rows)


def cut(conn: Connection, trace: Any, place: Place, at: int, ordinal: int, clock: float) -> Cut:
    """The cut before a step of a tick."""
    callers = sql.run(conn, "store/callers_of_tick", trace=trace.id, tick=place.tick).scalars()
    before = place.steps[ordinal].id if ordinal < len(place.steps) else None
    return Cut(trace.id, at, place.tick, tuple(callers), before, clock, place.paused_seconds)


def entries(conn: Connection, rows: Sequence[Any]) -> list[Entry]:
    """The journal of a run of a tick, with the results that were emptied. Raises JournalMismatch."""
    emptied = emptied_results(conn, rows)
    return [steps.entry(row, emptied.get(row.id)) for row in rows]


def emptied_results(conn: Connection, rows: Sequence[Any]) -> dict[int, Any]:
    """The results of a tick's steps that were emptied, by step, as the typed tables hold them."""
    emptied = [row for row in rows if row.status == StepStatus.DONE and row.result is None]
    if not emptied:
        return {}
    candidates: dict[int, list[Any]] = {}
    sampling = [row.origin for row in rows if row.kind == "sample"]
    for row in sql.run(conn, "store/sampled_candidates", steps=sampling):
        candidates.setdefault(row.step_id, []).append(row)
    answers: dict[int, dict[tuple[int, str], YesNo]] = {}
    scoring = [row.origin for row in emptied if row.kind == "score"]
    for row in sql.run(conn, "store/answers_of_steps", steps=scoring):
        answers.setdefault(row.step_id, {})[row.position, row.asked] = YesNo(yes=row.yes, no=row.no)
    origins = {row.ordinal: row.origin for row in rows}
    results: dict[int, Any] = {}
    for row in emptied:
        if row.kind == "sample":
            results[row.id] = [_candidate(candidate) for candidate in candidates[row.origin]]
        elif row.kind == "lint":
            results[row.id] = [_verdict(candidate) for candidate in candidates[origins[row.request["sample"]]]]
        elif row.kind == "score":
            scored, questions = answers[row.origin], row.request["questions"]
            texts = 1 + max(position for position, _ in scored)
            results[row.id] = [[scored[position, text] for text in questions] for position in range(texts)]
    return results


def _candidate(row: Any) -> Candidate:
    tokens = row.prompt_tokens if row.type == BlockType.ASSISTANT else None
    same = {name: getattr(row, name) for name in ("text", "finish_reason", "length")}
    return Candidate(tokens=row.n, prompt_tokens=tokens, **same)


def _verdict(row: Any) -> Verdict:
    penalties = Penalties(**{name: getattr(row, name) for name in Penalties.__struct_fields__})
    rewritten = row.text if row.rewritten is None else row.rewritten
    return Verdict(compiles=row.compiles, error=row.error, viable=row.viable, rewritten=rewritten, penalties=penalties)


def enqueue(
    conn: Connection, cut: Cut, n: int, *, seed: int, values: Mapping[str, Any], name: str | None, version: str
) -> tuple[int, list[int]]:
    """Write a job with `n` queued forks. Returns its id and theirs. Raises UsageError for wrong settings."""
    job = sql.run(conn, "store/fork_parent", trace=cut.trace_id).one()._asdict()
    of_trace = {column: job.pop(column) for column in ("job_id", "bootstrap_id", "harbor_task_id", "params")}
    own = {"name": name or f"fork of trace {cut.trace_id} at {cut.at}", "seed": seed, "version": version}
    job_id = jobs.insert_job(conn, job | own | {"enqueued_by": config.load().user})
    sql.run(conn, "store/fork_copy_settings", job=job_id, parent=of_trace["job_id"])
    sql.run(conn, "store/copy_documents", source=of_trace["job_id"], target=job_id)
    if values:
        jobs.retune(conn, job_id, dict(values))
    rows = [
        of_trace
        | {"job_id": job_id, "number": number, "seed": derive_seed(seed, "trace", number)}
        | {"fork_of": cut.trace_id, "fork_at": cut.at}
        for number in range(1, n + 1)
    ]
    jobs.insert_traces(conn, rows)
    return job_id, list(sql.run(conn, "store/traces_of_job", job=job_id).scalars())


COPIES = (
    "fork_copy_blocks", "fork_leave_corpus_queue", "fork_copy_tokens", "fork_copy_evaluations", "fork_copy_labels",
    "fork_copy_messages", "fork_copy_exchanges", "fork_copy_events", "fork_copy_programs", "fork_update_counts",
)  # fmt: skip
"""The queries that copy everything but the ticks and the steps, in order."""


def copy_prefix(conn: Connection, trace_id: int, cut: Cut, settings: trace_rows.TickSettings) -> None:
    """Give a fork that was just started what the other trace had at the cut."""
    parent = trace(conn, cut.trace_id)
    before = 2**63 - 1 if cut.before is None else cut.before
    paused = settings.paused_seconds - cut.paused_seconds  # a fork has the time that was left at the cut
    values = {"child": trace_id, "parent": parent.id, "revision": settings.revision, "paused": paused}
    values |= {"at": cut.at, "tick": cut.tick, "open": cut.open, "callers": list(cut.callers), "before": before}
    values |= {"clock": cut.clock, "moment": cut.clock + parent.lag}
    sql.run(conn, "store/fork_copy_ticks", **values)
    sql.run(conn, "store/fork_copy_steps", **values)
    for number in cut.open:
        _inherit(conn, trace_id, parent, number, cut.at)
    for query in COPIES:
        sql.run(conn, f"store/{query}", **values)
    last = sql.run(conn, "store/last_executed", **values).scalar_one_or_none()
    if last is not None:
        sql.run(conn, "store/save_subagents", trace=trace_id, subagents=replay.decode_result("execute", last).subagents)


def _inherit(conn: Connection, trace_id: int, parent: Any, number: int, at: int) -> None:
    """Record who wrote the blocks of an open tick so far and under which settings, and fill in emptied results."""
    tick = sql.run(conn, "store/inherited_by_tick", trace=parent.id, tick=number).one()
    own = InheritedSettings(at, parent.seed, parent.lag, tick.revision)
    sql.run(conn, "store/inherit", trace=trace_id, tick=number, inherited=[*(tick.inherited or ()), own])
    results = emptied_results(conn, steps.tick_rows(conn, trace_id, number, tick.run))
    sql.run_each(conn, "store/fill_result", [{"step": id, "result": result} for id, result in results.items()])
