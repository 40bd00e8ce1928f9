"""A step whose result the database refuses; steps and batches whose lease expires while their worker is alive."""

import re
from types import SimpleNamespace

import pytest

from tests.support.worker import enqueue, scalar
from weavegen.config import Config
from weavegen.database import Connection, Database, Statement
from weavegen.engine import worker as module
from weavegen.engine.rescoring import Rescorer
from weavegen.engine.worker import Done, Worker
from weavegen.kernel.steps import Execute, Executed
from weavegen.store import steps
from weavegen.store.steps import Claimed


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b"], ids=["NUL", "half a surrogate pair"])
@pytest.mark.parametrize("saved", [False, True], ids=["in the journal", "in a table of its own"])
def test_a_result_that_can_not_be_stored_fails_its_trace_at_once(
    db: Database, config: Config, monkeypatch: pytest.MonkeyPatch, text: str, saved: bool
) -> None:
    monkeypatch.setattr(module, "database", lambda: db)
    monkeypatch.setattr(module, "single", lambda: db.with_autocommit(True))
    job = enqueue(db)

    def save(conn: Connection) -> None:
        conn.execute(Statement("update traces set ended_because = :text"), {"text": text})

    def work(worker: Worker, claim: Claimed, step: Execute) -> Done:
        return Done("fine", save) if saved else Done(text)

    worker = Worker(config, lambda *_: None, {Execute: work})
    [message] = worker.engine.start_queued()

    outcome = worker.run(message.step_id)
    assert outcome.status == "failed"
    assert re.match(r"bug: its result can't be stored: .*(NUL|surrogate|Unicode)", outcome.detail)
    assert scalar(db, "select status from steps where id = :id", id=message.step_id) == "failed"
    assert scalar(db, "select claims from steps where id = :id", id=message.step_id) == 1
    assert scalar(db, "select status from traces where job_id = :job", job=job) == "failed"
    assert scalar(db, "select failure_kind from traces where job_id = :job", job=job) == "bug"
    assert "can't be stored" in scalar(db, "select failure from traces where job_id = :job", job=job)


def test_a_step_whose_lease_expires_is_not_begun_again_by_the_process_that_does_it(
    db: Database, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "database", lambda: db)
    monkeypatch.setattr(module, "single", lambda: db.with_autocommit(True))
    enqueue(db)
    begun = []

    def work(worker: Worker, claim: Claimed, step: Execute) -> Done:
        begun.append(claim.id)
        with db.begin() as conn:
            conn.execute(Statement("update steps set lease_until = now() - interval '1 second'"))
            assert [late.step_id for late in steps.overdue(conn, 60)] == [claim.id]
        assert worker.run(claim.id).detail == "this process does it already"
        return Done(Executed())

    worker = Worker(config, lambda *_: None, {Execute: work})
    [message] = worker.engine.start_queued()

    assert worker.run(message.step_id).status == "done"
    assert begun == [message.step_id]
    assert worker.run(message.step_id).detail == "nothing to do"
    assert scalar(db, "select claims from steps where id = :id and status = 'done'", id=message.step_id) == 1


def test_a_batch_whose_lease_expires_is_not_begun_again_either(config: Config) -> None:
    """Nothing is claimed: there is no database here."""
    rescorer = Rescorer(Worker(config, lambda *_: None, {}))
    with rescorer.leases.hold(SimpleNamespace(id=7, claims=1)):
        assert rescorer.run(7).detail == "this process does it already"
