"""Tasks about whole traces: advance one, sweep up what was lost, enqueue more."""

from typing import Any

from tasks.app import app
from tasks.worker import close_environments, engine, follow, send, settings
from weavegen.engine import enqueueing
from weavegen.kernel.steps import STEP_KINDS
from weavegen.store import requests, steps, traces
from weavegen.store.session import engine as database


@app.task(name="weavegen.advance")
def advance(trace_id: int) -> None:
    """Take a trace on from where its journal ends."""
    follow(engine().advance(trace_id), trace_id)


@app.task(name="weavegen.sweep")
def sweep() -> str:
    """Send again what was lost, start what may start, close what is over. Runs every second or so."""
    with database().begin() as conn:
        overdue = steps.overdue(conn, 2 * settings().lease)
        steps.returned(conn)
        traces.cancel_abandoned(conn)
        requests.follow(conn)
        stuck = list(traces.stuck(conn))
        # Steps of a newer version, which no worker would take: an advance starts their tick over.
        stuck += [steps.trace_of(conn, step.step_id) for step in overdue if step.kind not in STEP_KINDS]
    send(step for step in overdue if step.kind in STEP_KINDS)
    for trace_id in stuck:
        app.send_task("weavegen.advance", args=[trace_id], queue="control", argsrepr=f"trace {trace_id}")
    started = engine().start_queued()
    send(started)
    closing = close_environments()
    return f"{len(overdue)} sent again, {len(stuck)} advanced, {len(started)} started, {closing} closed"


@app.task(name="weavegen.enqueue")
def enqueue(bootstrap: str, **options: Any) -> int:
    """Enqueue traces of a bootstrap file's text, for producers that do not import weavegen. Returns the job's id.

    Options are those of `weavegen.enqueue`: n, name, rows, settings, seed, model, agent.
    """
    return enqueueing.enqueue_source(bootstrap, **options)
