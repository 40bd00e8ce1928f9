"""Delegated traces: an agent does a task for a trace of another agent, in a trace and a job of its own."""

from typing import Any

import msgspec

from weavegen import sql
from weavegen.database import Connection
from weavegen.kernel.seeds import derive_seed
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import Delegate
from weavegen.store import jobs
from weavegen.store.traces import TickSettings

INHERITED = ("context", "tokens", "network", "callback_seconds", "delegates", "delegated_traces")
"""Settings that a delegated trace inherits from its caller."""


def create(
    conn: Connection, trace_id: int, step_id: int, step: Delegate, settings: Settings
) -> tuple[int, TickSettings]:
    """Write a running trace for a Delegate step. Returns its id and the settings of its first tick.

    All traces that a job delegates to one agent are in one job: people see, pause and export them together.
    """
    caller = sql.run(conn, "store/caller_of_delegate", trace=trace_id).one()
    job_id = _job(conn, caller, step.agent, settings)
    order = jobs.Order(step.label[:80] or step.agent, msgspec.json.encode(step.task).decode())
    bootstrap = jobs.bootstrap_ids(conn, [order])[order.source]
    seed = derive_seed(caller.trace_seed, "delegate", step.agent, order.source)
    called = sql.run(conn, "store/insert_delegate", job=job_id, bootstrap=bootstrap, seed=seed, step=step_id).one()
    return called.id, TickSettings(called.revision, called.paused_seconds)


def _job(conn: Connection, caller: Any, agent: str, settings: Settings) -> int:
    """The job of the traces that a job delegates to an agent, locked. It is made if there is none."""
    defaults = Settings()
    inherited = {key: value for key in INHERITED if (value := getattr(settings, key)) != getattr(defaults, key)}
    if caller.harbor:  # its time is that of the agent of a Harbor task
        inherited.pop("callback_seconds", None)
    own = inherited | settings.delegates.get(agent, {})
    model = own.pop("model", caller.asked_model)
    values = {"caller": caller.id, "agent": agent, "model": model, "seed": derive_seed(caller.seed, "delegate", agent)}
    made = sql.run(conn, "store/insert_job_of_delegates", **values, settings=own).scalar_one_or_none()
    if made is not None:
        sql.run(conn, "store/copy_documents", source=caller.id, target=made)
        return int(made)
    return int(sql.run(conn, "store/lock_job_of_delegates", caller=caller.id, agent=agent).scalar_one())
