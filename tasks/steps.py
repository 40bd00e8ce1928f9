"""The tasks about traces: one for each kind of step, and advance, close, rescore, enqueue."""

from typing import Any

from tasks.app import app
from tasks.worker import report, rescorer, worker
from weavegen.engine import enqueueing, execution
from weavegen.engine.step_work import WORK
from weavegen.store.jobs import Order


def run(step_id: int) -> str:
    """Do one step of a trace."""
    return report(worker().run(step_id))


for step in WORK:
    app.task(name=f"weavegen.{step.__struct_config__.tag}")(run)


@app.task(name="weavegen.advance")
def advance(trace_id: int) -> None:
    """Advance a trace from the end of its journal."""
    worker().advance(trace_id)


@app.task(name="weavegen.close")
def close(trace_id: int) -> str:
    """Stop the environment of a trace that has ended, and remove its workspace."""
    return execution.close(worker(), trace_id)


@app.task(name="weavegen.rescore")
def rescore(batch_id: int) -> str:
    """Ask a campaign's questions about the texts of one batch."""
    return report(rescorer().run(batch_id))


@app.task(name="weavegen.enqueue")
def enqueue(bootstrap: str, *, n: int = 1, params: dict[str, Any] | None = None, **options: Any) -> int:
    """Enqueue traces of a bootstrap file's text, for producers that do not import weavegen. Returns the job's id.

    The options are those of `weavegen.enqueue`: n, name, params, settings, seed, model, agent, user, check. The file is
    not run first, unless `check` is true.
    """
    order = Order("bootstrap.py", bootstrap, params or {})
    return enqueueing.enqueue(traces=enqueueing.repeated(order, n), **{"check": False, **options})
