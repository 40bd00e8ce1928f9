"""Faults that are seen in a real PostgreSQL: silent workers, and queues that nobody serves."""

from typing import Any

from tests.support.worker import Worker, enqueue
from weavegen.database import Database, Statement
from weavegen.services.faults import Fault, queue_faults, sweep_faults, worker_faults
from weavegen.store import jobs, steps, workers
from weavegen.store.states import JobState


def do(db: Database, query: str, **parameters: Any) -> None:
    with db.begin() as conn:
        conn.execute(Statement(query), parameters)


def report(db: Database, process: str = "here:1", node: str = "model@here", *queues: str) -> None:
    with db.begin() as conn:
        workers.report(conn, process, node, queues, {"WEAVEGEN_LEASE": "15.0"})


def faults(db: Database) -> list[Fault]:
    with db.begin() as conn:
        return [*worker_faults(conn), *queue_faults(conn)]


def waits(db: Database, seconds: int) -> None:
    """Let the ready steps have waited for this long."""
    do(db, "update steps set ready_at = now() - make_interval(secs => :seconds)", seconds=seconds)


def test_a_report_replaces_the_worker_that_had_the_node_on_this_host(db: Database) -> None:
    report(db, "here:1")
    report(db, "there:1")
    report(db, "here:2")
    report(db, "here:2", "model@here", "sample")
    with db.begin() as conn:
        rows = workers.rows(conn)
        assert [(row.process, row.queues) for row in rows] == [("here:2", ["sample"]), ("there:1", [])]
        assert rows[0].settings == {"WEAVEGEN_LEASE": "15.0"}
        workers.forget(conn, ["there:1"])
        assert [row.process for row in workers.rows(conn)] == ["here:2"]


def test_a_worker_that_does_not_report_is_silent_and_later_forgotten(db: Database) -> None:
    report(db)
    assert faults(db) == []
    do(db, "update workers set seen_at = now() - interval '30 seconds'")
    [fault] = faults(db)
    assert (fault.kind, fault.what) == ("worker", "the worker model@here (here:1) has been silent for 30 s")
    do(db, "update workers set seen_at = now() - interval '1 hour'")
    assert faults(db) == []


def test_open_traces_without_a_worker_are_a_fault(db: Database) -> None:
    job = enqueue(db, 3, ticks=1)
    [fault] = faults(db)
    assert fault.what == "no worker runs, and 3 traces are open"
    with db.begin() as conn:
        jobs.set_state(conn, JobState.PAUSED, job)
    assert faults(db) == []


def test_a_queue_that_no_worker_serves_is_a_fault(db: Database) -> None:
    job = enqueue(db, 2, ticks=1)
    [first, _] = Worker(db, max_active=2).engine.start_queued()
    report(db, "here:1", "lint@here", "lint")
    waits(db, 2)
    assert faults(db) == []
    waits(db, 8)
    [fault] = faults(db)
    assert fault.kind == "queue"
    assert fault.what == f"no worker serves the queue {first.queue}: 2 steps wait, the oldest for 8 s"
    report(db, "here:2", "other@here", first.queue)
    assert faults(db) == []
    with db.begin() as conn:
        jobs.set_state(conn, JobState.PAUSED, job)
    waits(db, 80)
    assert faults(db) == []


def test_steps_that_no_worker_has_taken_for_a_minute_are_a_fault(db: Database) -> None:
    enqueue(db, 1, ticks=1)
    worker = Worker(db, max_active=1)
    [first] = worker.engine.start_queued()
    report(db, "here:1", "model@here", first.queue)
    waits(db, 70)
    [fault] = faults(db)
    assert fault.what == f"no worker has taken a step from the queue {first.queue} for 70 s: 1 step waits"
    # A step that was tried and waits for its next attempt is no fault of the queue.
    do(db, "update steps set claims = 1, failure = 'busy', send_after = now() + interval '20 seconds'")
    assert faults(db) == []
    # A worker took it 5 s ago, and gave it back: what it needs, such as an image, was being made.
    given_back = "claims = 0, failure = 'an image is being made', send_after = now()"
    do(db, f"update steps set claimed_at = now() - make_interval(secs => 5), {given_back}")
    assert faults(db) == []


def test_that_nothing_sweeps_is_a_fault(db: Database) -> None:
    def fault() -> str | None:
        with db.begin() as conn:
            found = sweep_faults(conn)
        return found[0].what if found else None

    enqueue(db, 2, ticks=1)
    do(db, "update traces set created_at = now() - interval '20 seconds'")
    assert fault() is None, "no worker could do it"
    report(db, "here:1", "control@here", "control")
    assert fault() == "nothing has sent what waits for 20 s"
    Worker(db, max_active=1).engine.start_queued()
    assert fault() is None, "the other trace starts after the one that runs"
    do(db, "update steps set send_after = now() - interval '30 seconds'")
    assert fault() == "nothing has sent what waits for 30 s"
    with db.begin() as conn:
        assert len(steps.overdue(conn, 30)) == 1
    assert fault() is None
