"""What becomes of a step whose work is done and whose result the database refuses."""

import pytest
import sqlalchemy as sa

import tasks.worker
from tasks.app import StepFailed
from tasks.worker import Done, work_on
from tests.integration.worker import Worker, enqueue, scalar


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b"], ids=["NUL", "half a surrogate pair"])
@pytest.mark.parametrize("saved", [False, True], ids=["in the journal", "in a table of its own"])
def test_a_result_that_can_not_be_stored_fails_its_trace_at_once(
    db: sa.Engine, monkeypatch: pytest.MonkeyPatch, text: str, saved: bool
) -> None:
    worker = Worker(db)
    monkeypatch.setattr(tasks.worker, "engine", lambda: worker.engine)
    monkeypatch.setattr(tasks.worker, "single", lambda: db.execution_options(isolation_level="AUTOCOMMIT"))
    job = enqueue(db)
    [message] = worker.engine.start_queued()

    def save(conn: sa.Connection) -> None:
        conn.execute(sa.text("update traces set ended_because = :text"), {"text": text})

    with pytest.raises(StepFailed, match=r"bug: its result can't be stored: .*(NUL|surrogate|Unicode)"):
        work_on(message.step_id, lambda held: Done("fine", save) if saved else Done(text))
    assert scalar(db, "select status from steps where id = :id", id=message.step_id) == "failed"
    assert scalar(db, "select claims from steps where id = :id", id=message.step_id) == 1
    assert scalar(db, "select status from traces where job_id = :job", job=job) == "failed"
    assert scalar(db, "select failure_kind from traces where job_id = :job", job=job) == "bug"
    assert "can't be stored" in scalar(db, "select failure from traces where job_id = :job", job=job)
