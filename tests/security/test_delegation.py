"""A trace can't have others write traces without end."""

from collections.abc import Iterator

import pytest

from tests.support.database import database_of_copy
from tests.support.worker import Worker, enqueue, scalar
from weavegen.audit.check import Scope
from weavegen.audit.prove import audit
from weavegen.config import Config
from weavegen.database import Database, Statement
from weavegen.kernel.steps import Delegate, Execute, Executed
from weavegen.store import steps
from weavegen.store.states import StepStatus


@pytest.fixture
def db(config: Config, template: str) -> Iterator[Database]:
    with database_of_copy(config, template) as db:
        yield db


END_DELEGATES = """
update traces set status = 'ended', ended_because = 'returned', finished_at = now(), returned = '{"summary": "x"}'
where called_by is not null and status = 'running'
"""


@pytest.mark.parametrize("most", [0, 20, 64])
def test_one_action_can_not_ask_for_traces_without_end(db: Database, most: int) -> None:
    worker = Worker(db)
    enqueue(db, **({} if most == 64 else {"delegated_traces": most}))
    trace = int(scalar(db, "select id from traces"))
    pending = worker.engine.start_queued()
    sources: list[str] = []
    for round in range(6):
        [message] = pending
        held = worker.claim(message.step_id)
        assert held is not None
        assert isinstance(held.step, Execute)
        sources.append(held.step.source)
        tasks = tuple(Delegate(agent="research", task={"task": f"{round} {n}"}, label="x") for n in range(16))
        executed = Executed(delegates=tasks if round < 5 else ())
        progress = worker.engine.finish(held, StepStatus.DONE, result=executed)
        if round == 5:
            break
        with db.begin() as conn:
            conn.execute(Statement(END_DELEGATES))
            steps.end_returned_delegates(conn)
        started = {step.step_id for step in progress.messages}
        own = Statement("select id from steps where trace_id = :trace and kind = 'execute' and status = 'ready'")
        more = worker.engine.advance(trace).messages
        with db.connect() as conn:
            ready = conn.execute(own, {"trace": trace}).scalars()
        pending = [step for step in (*progress.messages, *more) if step.step_id in ready]
        assert started >= {step.step_id for step in pending} or more
    asked = scalar(db, "select count(*) from traces where called_by is not null")
    assert asked == most
    assert sum(source.count("delegated_traces allows no more") for source in sources) == 5 * 16 - most
    assert scalar(db, "select count(*) from events where kind = 'delegation refused'") == 5 * 16 - most
    with db.connect() as conn:
        report = audit(conn, Scope(), 600, None)
    assert not [outcome for outcome in report.outcomes if outcome.name == "delegations" and outcome.found]
