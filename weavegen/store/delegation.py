"""Delegated traces: an agent does a task for a trace of another agent, in a trace and a job of its own."""

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from weavegen import sql
from weavegen.kernel.seeds import derive_seed
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import Delegate
from weavegen.store import documents, jobs
from weavegen.store.models import TraceStatus
from weavegen.store.models.traces import JOBS, TRACES
from weavegen.store.traces import TickSettings

INHERITED = ("context", "tokens", "network", "callback_seconds", "delegates", "delegated_traces")
"""Settings that a delegated trace has from its caller."""
SHARED = ("evaluator", "student", "packages_id", "starting_files_id", "version", "enqueued_by")
"""Columns that the job of delegated traces has from their caller's."""


def count(conn: sa.Connection, trace_id: int) -> int:
    """How many traces were delegated so far in the tree of traces that this trace belongs to."""
    return int(sql.run(conn, "store/delegated_traces", trace=trace_id).scalar_one())


def create(
    conn: sa.Connection, trace_id: int, step_id: int, step: Delegate, settings: Settings
) -> tuple[int, TickSettings]:
    """Write a running trace for a Delegate step. Returns its id and the settings of its first tick.

    All traces that a job delegates to one agent are in one job: people see, pause and export them together.
    """
    caller = sql.run(conn, "store/caller_of_delegate", trace=trace_id).one()
    job_id = _job(conn, caller, step.agent, settings)
    order = jobs.Order(step.label[:80] or step.agent, msgspec.json.encode(step.task).decode())
    number = sa.select(sa.func.coalesce(sa.func.max(TRACES.c.number), 0) + 1).where(TRACES.c.job_id == job_id)
    values = {
        "job_id": job_id,
        "number": conn.execute(number).scalar_one(),
        "bootstrap_id": jobs.bootstrap_ids(conn, [order])[order.source],
        "params": {},
        "seed": derive_seed(caller.trace_seed, "delegate", step.agent, order.source),
        "called_by": step_id,
        "status": TraceStatus.RUNNING,
        "started_at": sa.func.clock_timestamp(),
    }
    called = conn.execute(sa.insert(TRACES).values(values).returning(TRACES.c.id)).scalar_one()
    job = conn.execute(sa.select(JOBS.c.revision, JOBS.c.paused_seconds).where(JOBS.c.id == job_id)).one()
    return int(called), TickSettings(job.revision, job.paused_seconds)


def _job(conn: sa.Connection, caller: sa.Row[tuple[object, ...]], agent: str, settings: Settings) -> int:
    """The job of the traces that a job delegates to an agent, locked. It is made if there is none."""
    defaults = Settings()
    inherited = {key: value for key in INHERITED if (value := getattr(settings, key)) != getattr(defaults, key)}
    own = inherited | settings.delegates.get(agent, {})
    model = own.pop("model", caller.asked_model)
    values = {
        "name": f"{caller.name}: {agent}",
        "agent": agent,
        "model": model,
        "asked_model": model,
        "template_id": caller.template_id if model == caller.asked_model else None,
        "seed": derive_seed(caller.seed, "delegate", agent),
        "settings": own,
        "called_by": caller.id,
        **{name: getattr(caller, name) for name in SHARED},
    }
    made = conn.execute(insert(JOBS).values(values).on_conflict_do_nothing().returning(JOBS.c.id)).scalar()
    if made is not None:
        documents.copy(conn, caller.id, made)
        return int(made)
    those = (JOBS.c.called_by == caller.id) & (JOBS.c.agent == agent)
    return int(conn.execute(sa.select(JOBS.c.id).where(those).with_for_update()).scalar_one())
