"""Requests in a real database: their states, answers, changes; tools that are made once and used again."""

import itertools
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simulation.policies import answer as judge
from simulation.policies import dialogue
from simulation.policies.dialogue import Conversation
from simulation.policies.situation import read
from tests.support.worker import Worker, scalar
from weavegen import cli, sql
from weavegen import config as configuration
from weavegen.database import Database, Statement
from weavegen.engine import forking, tool_requests
from weavegen.errors import ModelError, UsageError
from weavegen.kernel.steps import Candidate, Execute, LookUp, Sample, Score, Step, ToolSaved, YesNo
from weavegen.sandbox.environment import Environment
from weavegen.search.lookups import consult
from weavegen.store import jobs, session, steps, tools, traces
from weavegen.store import requests as store
from weavegen.store.requests import OVER, SUCCESSORS, standing
from weavegen.store.states import RequestStatus, StepStatus, TraceStatus

WORDS = 'How many words has "one two three four"?'
ASKS = "How many words has the text?"
S = RequestStatus


@pytest.fixture
def here(db: Database, database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The database as this process's own, for the functions of weavegen/engine/tool_requests.py."""
    monkeypatch.setenv("DATABASE_URL", database)
    monkeypatch.setenv("WEAVEGEN_USER", "kim")
    session.database.cache_clear()
    yield db
    session.database().close()
    session.database.cache_clear()


class Simulation(Worker):
    """Runs steps as the tasks do: texts by the simulation's policies, programs in real boxes, real look-ups.

    `says` replaces the texts of the execution stage, in order.
    """

    def __init__(self, db: Database, says: list[str] | None = None) -> None:
        super().__init__(db)
        self.says = says
        self.world = self  # type: ignore[assignment]
        self.boxes: dict[int, Environment] = {}
        self.home = tempfile.TemporaryDirectory(prefix="weavegen-test-")
        Path(self.home.name).chmod(0o711)
        self.numbers = itertools.count(1)
        self.held: steps.Claimed
        self.kinds: list[tuple[int, str]] = []
        """(trace, kind) of each executed step."""

    def finish(self, held: steps.Claimed) -> list[steps.Message]:
        self.held = held
        self.kinds.append((held.trace_id, str(held.step.__struct_config__.tag)))
        return super().finish(held)

    def answer(self, step: Step, journal: list[Any]) -> Any:
        if isinstance(step, LookUp):
            return consult(self.db, self.held.trace_id, step.tool, step.arguments)
        if isinstance(step, Execute):
            return self.box().execute(next(self.numbers), step)
        if isinstance(step, Sample):
            texts = [self.text(step, number) for number in range(step.n)]
            return [Candidate(text=text, finish_reason="stop", tokens=len(text) // 4 + 1) for text in texts]
        assert isinstance(step, Score)
        texts = [one.text for one in journal[step.sample or 0].result]
        asked = [[judge(read(f"{text}\n#q: {question}")) for question in step.questions] for text in texts]
        return [[YesNo(yes=yes, no=1 - yes) for yes in row] for row in asked]

    def box(self) -> Environment:
        trace = self.held.trace_id
        if trace not in self.boxes:
            config = configuration.load({"WEAVEGEN_HOME": self.home.name})
            self.boxes[trace] = Environment.start(config, next(self.numbers))
        return self.boxes[trace]

    def text(self, step: Sample, number: int) -> str:
        first, end = step.prompt.window
        query = "select type, body from blocks where trace_id = :t and index >= :a and index < :b order by index"
        with self.db.connect() as conn:
            rows = conn.execute(Statement(query), {"t": self.held.trace_id, "a": first, "b": end}).all()
        roles = {"assistant": "assistant", "system": "system"}
        conversation = Conversation([(roles.get(row.type, "user"), row.body) for row in rows])
        if self.says and conversation.system.startswith("You carry out a request"):
            return self.says.pop(0) if len(self.says) > 1 else self.says[0]
        return dialogue.write(conversation, step.seed, number).removesuffix("<|im_end|>")

    def work(self) -> None:
        """Run until nothing is left to do, with the sweeper's work in between."""
        messages = self.engine.start_queued()
        while True:
            self.run(messages)
            with self.db.begin() as conn:
                steps.end_returned_delegates(conn)
                traces.cancel_abandoned(conn)
                store.follow_traces(conn)
                stuck = list(sql.run(conn, "store/stuck_traces").scalars())
            messages = [message for trace in stuck for message in self.engine.advance(trace).messages]
            if not stuck:
                return

    def close(self) -> None:
        for box in self.boxes.values():
            box.stop(keep_workspace=False)
        self.home.cleanup()


@pytest.fixture
def simulation(here: Database) -> Iterator[Simulation]:
    worker = Simulation(here)
    yield worker
    worker.close()


def call(name: str, /, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


FINISH = call("finish", success=True, result="There are 4.")


def history(number: int) -> list[tuple[str, str]]:
    return [(change.what, change.status) for change in tool_requests.show(number).changes]


def status(number: int) -> str:
    return tool_requests.show(number).request.status


# -------------------------------------------------------------------------------------- whole requests


def test_a_second_similar_request_makes_no_new_tool(simulation: Simulation) -> None:
    """From objective to result with the simulation; the tool is searched by funsearch in a real box."""
    db = simulation.db
    for seed in itertools.count(5):  # not every search of the simulation is successful
        first = tool_requests.create(WORDS, requirements=["a number"], constraints=["no network"], seed=seed)
        assert status(first) == S.NOT_STARTED
        simulation.work()
        statuses = [(what, status) for what, status in history(first)]
        assert statuses[:2] == [("created", S.NOT_STARTED), ("status", S.IN_PROGRESS)]
        assert statuses[2:] in ([("status", S.SUCCEEDED)], [("status", S.FAILED)])
        if scalar(db, "select count(*) from tools"):
            break
        assert seed < 12
    row = tool_requests.show(first).request
    assert row.asked_by == "kim"
    returned = scalar(db, "select returned from traces where id = :id", id=row.trace_id)
    assert (returned["made"], row.result) == (["count_units"], returned["result"])
    with db.connect() as conn:
        [tool] = tools.rows(conn)
        [version] = tools.versions(conn, "count_units")
    assert (tool.name, tool.version, tool.made_by) == ("count_units", 1, row.trace_id)
    assert version.score is not None
    assert version.generality is not None
    assert "def test(" in tool.tests
    assert "def evaluate(" in tool.evaluator
    program = "select source from programs where trace_id = :trace and number = :number"
    assert scalar(db, program, trace=version.searched_by, number=version.program) == tool.source
    agent = "select distinct j.agent from jobs j join traces t on t.job_id = j.id where t.id = :id"
    assert scalar(db, agent, id=version.searched_by) == "funsearch"

    simulation.says = [call("count_units", text="the cat and the dog", unit="words"), FINISH]
    second = tool_requests.create('Count the words of "the cat and the dog"!', seed=6)
    simulation.work()
    row = tool_requests.show(second).request
    returned = scalar(db, "select returned from traces where id = :id", id=row.trace_id)
    assert (row.status, returned["made"], returned["tools"]) == (S.SUCCEEDED, [], ["count_units@1"])
    assert scalar(db, "select count(*) from tool_versions") == 1
    assert scalar(db, "select count(*) from steps where trace_id = :id and kind = 'delegate'", id=row.trace_id) == 0
    with db.connect() as conn:
        uses = tools.rows(conn)[0]
    assert uses.uses >= uses.successes >= 1
    assert scalar(db, "select count(*) from tool_uses where trace_id = :id and success", id=row.trace_id) == 1


def test_a_trace_calls_the_version_whose_signature_it_was_given(simulation: Simulation) -> None:
    """Another trace makes a tool of the same name with another signature while this one asks its user."""
    name, what = "count_units", "Return how many words a text has."
    one, two = (f"def {name}({arguments}) -> int" for arguments in ("text: str", "text: str, sep: str"))
    number = tool_requests.create(WORDS, seed=5)
    trace = tool_requests.show(number).request.trace_id
    assert trace is not None

    def save(line: str, answer: int) -> int:
        with simulation.db.begin() as conn:
            source = f"{line}:\n    return {answer}\n"
            return tools.save(conn, trace, ToolSaved(name=name, description=what, signature=line, source=source))

    assert save(one, 1) == 1
    simulation.says = [call("ask_user", question="Which text?"), call(name, text="a b"), FINISH]
    simulation.work()
    assert save(two, 2) == 2
    tool_requests.answer(number, "this")
    simulation.work()
    body = "select body from blocks where type = 'tool' order by id desc limit 1"
    assert '{"success": true, "output": "1\\n"}' in scalar(simulation.db, body)
    assert scalar(simulation.db, "select returned from traces where id = :id", id=trace)["tools"] == [f"{name}@1"]
    found = json.loads(consult(simulation.db, trace, "read_tool", {"name": name}).output)
    assert (found["version"], found["signature"]) == (2, two)
    assert not consult(simulation.db, trace, "read_tool", {"name": name, "version": 3}).success


def test_feedback_resumes_exactly_where_the_request_waited(simulation: Simulation) -> None:
    simulation.says = [call("ask_user", question="Which text do you mean?"), FINISH]
    number = tool_requests.create("How warm is it?", seed=5)
    simulation.work()
    shown = tool_requests.show(number)
    assert (shown.request.status, shown.request.question) == (S.WAITING_FEEDBACK, "Which text do you mean?")
    before = len(simulation.kinds)
    simulation.work()
    assert len(simulation.kinds) == before  # the request waits
    with pytest.raises(UsageError, match="the answer is empty"):
        tool_requests.answer(number, " ")
    assert tool_requests.answer(number, "the text on page 3").status == S.IN_PROGRESS
    with pytest.raises(UsageError, match=f"request {number} has no open question, its status is IN_PROGRESS"):
        tool_requests.answer(number, "or on page 4")
    simulation.work()
    assert history(number) == [
        ("created", S.NOT_STARTED), ("status", S.IN_PROGRESS), ("status", S.WAITING_FEEDBACK),
        ("answered", S.IN_PROGRESS), ("status", S.SUCCEEDED),
    ]  # fmt: skip
    assert [kind for _, kind in simulation.kinds[before:]] == ["consult", "sample"]  # it reads the request, and ends
    changes = tool_requests.show(number).changes
    assert [change.reason for change in changes[2:]] == [
        "Which text do you mean?",
        "the text on page 3",
        "There are 4.",
    ]
    assert [change.at for change in changes] == sorted(change.at for change in changes)
    body = "select body from blocks where type = 'tool' order by id desc limit 1"
    assert '"output": "the text on page 3"' in scalar(simulation.db, body)


def test_a_fork_of_a_trace_that_asks_the_user_decides_itself(simulation: Simulation) -> None:
    simulation.says = [call("ask_user", question="Which text do you mean?"), FINISH]
    number = tool_requests.create("How warm is it?", seed=5)
    simulation.work()
    trace = tool_requests.show(number).request.trace_id
    with simulation.db.begin() as conn:
        at = scalar(simulation.db, "select max(index) from blocks where trace_id = :id", id=trace)
        cut = forking.plan(conn, trace, at)
        _, [fork] = forking.submit(conn, cut, 1, seed=1, values={}, name=None, version="0")
    simulation.says = [call("ask_user", question="Which text do you mean?"), FINISH]
    simulation.work()
    assert scalar(simulation.db, "select status from traces where id = :id", id=fork) == "ended"
    body = scalar(simulation.db, "select body from blocks where trace_id = :id and type = 'tool'", id=fork)
    assert "Nobody can be asked here: decide yourself" in body
    assert status(number) == S.WAITING_FEEDBACK


def test_code_that_asks_the_model_continues_with_its_answer(simulation: Simulation) -> None:
    question = "Word this as a short sentence for the user: 4"
    code = f"words = ask_model({question!r})\nopen('x', 'a').write('x')\nprint(words)"
    simulation.says = [call("python", code=code + "\nlen(open('x').read())"), FINISH]
    assert status(tool_requests.create("How warm is it?")) == S.NOT_STARTED
    simulation.work()
    body = "select body from blocks where type = 'tool' order by id desc limit 1"
    assert '"output": "The result: 4\\n1\\n"' in scalar(simulation.db, body)


def test_two_questions_in_a_row_are_two_waits(simulation: Simulation) -> None:
    simulation.says = [call("ask_user", question="Which?") + call("ask_user", question="Why?"), FINISH]
    number = tool_requests.create("How warm is it?")
    simulation.work()
    tool_requests.answer(number, "this")
    simulation.work()
    assert tool_requests.show(number).request.question == "Why?"
    tool_requests.answer(number, "so")
    simulation.work()
    assert [kind for kind, _ in history(number)].count("answered") == 2
    assert status(number) == S.SUCCEEDED


def test_cancelling_while_it_waits(simulation: Simulation) -> None:
    simulation.says = [call("ask_user", question="Which?"), FINISH]
    number = tool_requests.create("How warm is it?")
    simulation.work()
    assert tool_requests.cancel(number, "no longer needed").status == S.CANCELED
    assert tool_requests.show(number).changes[-1].reason == "no longer needed"
    assert scalar(simulation.db, "select status from traces") == "cancelled"
    assert scalar(simulation.db, "select count(*) from steps where status in ('ready', 'running')") == 0
    with pytest.raises(UsageError, match="is over, it is CANCELED"):
        tool_requests.cancel(number, "again")
    with pytest.raises(UsageError, match="is over, it is CANCELED"):
        tool_requests.answer(number, "this")
    with pytest.raises(UsageError, match="is over, it is CANCELED"):
        tool_requests.update(number, objective="x")
    simulation.work()
    assert status(number) == S.CANCELED


def test_cancelling_a_request_ends_delegated_traces(simulation: Simulation) -> None:
    number = tool_requests.create(WORDS, seed=5)
    messages = simulation.engine.start_queued()
    while not scalar(simulation.db, "select count(*) from jobs where agent = 'funsearch'"):
        held = simulation.claim(messages.pop(0).step_id)
        assert held is not None
        messages += simulation.finish(held)
    tool_requests.cancel(number, "enough")
    simulation.work()
    assert scalar(simulation.db, "select count(*) from traces where status = 'cancelled'") == 2
    told = "select count(distinct trace_id) from events where kind = 'cancelled' having count(*) = 2"
    assert scalar(simulation.db, told) == 2


def test_a_change_is_read_at_the_next_turn_and_recorded(simulation: Simulation) -> None:
    simulation.says = [call("ask_user", question="Which?"), FINISH]
    number = tool_requests.create("How warm is it?", requirements=["in Celsius"])
    simulation.work()
    row = tool_requests.update(number, requirements=["in Kelvin", "rounded"], reason="it goes into a table")
    assert (row.revision, row.requirements, row.objective) == (1, ["in Kelvin", "rounded"], "How warm is it?")
    assert row.status == S.WAITING_FEEDBACK
    tool_requests.answer(number, "this")
    simulation.work()
    changed = next(change for change in tool_requests.show(number).changes if change.what == "updated")
    assert changed.reason == "it goes into a table"
    assert changed.changed == {"requirements": ["in Kelvin", "rounded"]}
    body = "select body from blocks where body like 'The user has changed the request.%'"
    assert "- in Kelvin\n- rounded" in scalar(simulation.db, body)


def test_messages_are_found_by_later_requests(simulation: Simulation) -> None:
    simulation.says = [call("ask_user", question="Which unit?"), FINISH]
    number = tool_requests.create("How warm is it?", constraints=["never use Fahrenheit"])
    simulation.work()
    tool_requests.answer(number, "always in Kelvin")
    simulation.work()
    other = tool_requests.create("How warm is it in Rome?", user="robin")
    trace = tool_requests.show(other).request.trace_id
    assert trace is not None

    def asked(tool: str, **arguments: Any) -> Any:
        answer = consult(simulation.db, trace, tool, arguments)
        assert answer.success, answer
        return json.loads(answer.output)

    assert asked("preferences", user="kim", query="kelvin", number=other) == [
        "always in Kelvin",
        "never use Fahrenheit",
    ]
    assert asked("preferences", user="robin", query="kelvin", number=other) == []
    assert asked("preferences", user="kim", query="kelvin", number=number) == []
    [past] = asked("past_requests", query="warm", number=other)
    assert (past["number"], past["status"], past["outcome"]) == (number, S.SUCCEEDED, "There are 4.")
    assert asked("past_requests", query="volcano", number=other) == []
    assert asked("read_request", number=number)["constraints"] == ["never use Fahrenheit"]
    assert not consult(simulation.db, trace, "read_request", {"number": 99}).success


# ------------------------------------------------------------------------------------------------ states


def test_a_failed_trace_fails_its_request_and_a_retry_starts_it_again(simulation: Simulation) -> None:
    db = simulation.db
    number = tool_requests.create("How warm is it?")
    held = simulation.claim(simulation.engine.start_queued()[0].step_id)
    assert held is not None
    simulation.engine.finish(held, StepStatus.FAILED, failure_kind=ModelError.kind, failure="the context is too long")
    shown = tool_requests.show(number)
    assert (shown.request.status, shown.changes[-1].reason) == (S.FAILED, "the context is too long")
    with db.begin() as conn:
        _, [again] = jobs.retry(conn, [held.trace_id], [TraceStatus.FAILED])
    assert again == held.trace_id
    assert status(number) == S.NOT_STARTED
    simulation.says = [FINISH]
    simulation.work()
    assert [what for _, what in history(number)] == [
        S.NOT_STARTED, S.IN_PROGRESS, S.FAILED, S.NOT_STARTED, S.IN_PROGRESS, S.SUCCEEDED
    ]  # fmt: skip


def test_cancelling_a_job_cancels_its_request(here: Database) -> None:
    number = tool_requests.create("How warm is it?")
    job = tool_requests.show(number).request.job_id
    assert job is not None
    with here.begin() as conn:
        traces.cancel(conn, job)
    assert history(number)[-1] == ("status", S.CANCELED)


def retried(db: Database, number: int) -> int:
    """Cancel a request's job and try its trace again, as two commands do between two sweeps. Returns the new trace."""
    request = tool_requests.show(number).request
    assert request.job_id is not None
    assert request.trace_id is not None
    with db.begin() as conn:
        traces.cancel(conn, request.job_id)
        jobs.retry(conn, [request.trace_id], [TraceStatus.CANCELLED])
        return int(conn.execute(Statement("select max(id) from traces")).scalar_one())


@pytest.mark.parametrize("begun", [False, True])
def test_a_trace_that_is_cancelled_and_tried_again_between_two_sweeps(here: Database, begun: bool) -> None:
    number = tool_requests.create("How warm is it?")
    if begun:
        with here.begin() as conn:
            conn.execute(Statement("update traces set status = 'running', started_at = now()"))
    assert status(number) == (S.IN_PROGRESS if begun else S.NOT_STARTED)
    again = retried(here, number)
    assert history(number)[-2:] == [("status", S.CANCELED), ("status", S.NOT_STARTED)]
    assert tool_requests.show(number).request.trace_id == again
    again = retried(here, number)
    tool_requests.update(number, objective="How cold is it?")  # it is open: its newest trace is queued
    assert tool_requests.show(number).request.trace_id == again


def test_a_request_that_can_not_be_followed_stops_no_other(
    here: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, other = (tool_requests.create("How warm is it?") for _ in range(2))
    with here.begin() as conn:
        conn.execute(Statement("update traces set status = 'running', started_at = now()"))
    monkeypatch.setattr(store, "standing", lambda row: standing(row) if row.id == other else 1 / 0)
    with here.begin() as conn:
        assert store.follow_traces(conn) == 2
    assert [row.status for row in tool_requests.listed()] == [S.NOT_STARTED, S.IN_PROGRESS]
    assert f"request {broken} can't follow trace" in caplog.text


def test_the_longest_request_can_be_looked_up(here: Database) -> None:
    quotes = '"' * tool_requests.MAX_TEXT_CHARS
    number = tool_requests.create(quotes, requirements=[quotes] * 7)
    trace = tool_requests.show(number).request.trace_id
    assert trace is not None
    answer = consult(here, trace, "read_request", {"number": number})
    assert answer.success
    assert json.loads(answer.output)["requirements"] == [quotes] * 7
    with pytest.raises(UsageError, match="more than 80,000 characters"):
        tool_requests.update(number, constraints=["no network"])
    with pytest.raises(UsageError, match="more than 80,000 characters"):
        tool_requests.create(quotes, requirements=[quotes] * 8)


def test_changes_that_nobody_read_are_recorded_too(here: Database) -> None:
    number = tool_requests.create("How warm is it?")
    over = {"success": False, "error": "it reached its limit of 50 steps", "result": "half of it"}
    query = (
        "update traces set status = 'ended', started_at = '2026-01-01 10:00Z', finished_at = '2026-01-01 11:00Z',"
        " ended_because = 'returned', returned = cast(:returned as jsonb)"
    )
    with here.begin() as conn:
        conn.execute(Statement(query), {"returned": over})
    shown = tool_requests.show(number)
    assert [(one.status, one.at.hour) for one in shown.changes[1:]] == [(S.IN_PROGRESS, 10), (S.FAILED, 11)]
    assert shown.changes[-1].reason == "it reached its limit of 50 steps"
    assert shown.request.result == "half of it"
    with here.begin() as conn:
        assert store.follow_traces(conn) == 0


@pytest.mark.parametrize(
    ("values", "stands", "reason"),
    [
        ({"status": "queued"}, S.NOT_STARTED, "queued"),
        ({"status": "running"}, S.IN_PROGRESS, "works on it"),
        ({"status": "cancelled"}, S.CANCELED, "was cancelled"),
        ({"status": "failed", "failure": "no server"}, S.FAILED, "no server"),
        ({"status": "failed"}, S.FAILED, "failed"),
        ({"status": "ended", "returned": {"success": True, "result": "4"}}, S.SUCCEEDED, "4"),
        ({"status": "ended", "returned": {"success": False, "result": "no text"}}, S.FAILED, "no text"),
        ({"status": "ended", "returned": {"success": "yes"}}, S.FAILED, "before it was done"),
        ({"status": "ended", "returned": None, "because": "time"}, S.FAILED, "time"),
        ({"status": "ended", "returned": [1]}, S.FAILED, "no reason"),
    ],
)
def test_the_state_of_a_request_follows_from_its_trace(
    values: dict[str, Any], stands: RequestStatus, reason: str
) -> None:
    unset = ("question", "asked_at", "started_at", "finished_at", "returned", "failure", "because")
    found = standing(SimpleNamespace(**dict.fromkeys(unset) | {"trace": 3} | values))
    assert found.status is stands
    assert reason in found.reason


def test_only_legal_transitions_are_made(here: Database) -> None:
    for before, after in itertools.product(S, S):
        with here.begin() as conn:
            number = store.insert(conn, store.RequestSpec("How warm is it?"), "kim")
            question = "Which?" if before is S.WAITING_FEEDBACK else None
            conn.execute(
                Statement("update requests set status = :status, question = :question where id = :id"),
                {"status": before, "question": question, "id": number},
            )
            row = store.load(conn, number)
            if after in SUCCESSORS[before]:
                store.set_status(conn, row, after, "so")
                assert store.load(conn, number).status == after
                assert [one.status for one in store.changes(conn, number)] == [S.NOT_STARTED, after]
            else:
                with pytest.raises(ValueError, match="can't become"):
                    store.set_status(conn, row, after, "so")
    assert {one for one in S if not SUCCESSORS[one] - {S.NOT_STARTED}} == OVER


# --------------------------------------------------------------------------------------------- the library


def test_versions_and_uses_of_tools(here: Database) -> None:
    number = tool_requests.create("How warm is it?")
    trace = tool_requests.show(number).request.trace_id
    assert trace is not None
    made = ToolSaved(name="count_units", description="Count words.", signature="def count_units(text)", source="one")
    with here.begin() as conn:
        assert tools.save(conn, trace, made) == 1
        assert tools.save(conn, trace, made) == 1  # as if its tick had been restarted
        better = ToolSaved(
            name="count_units", description="Count lines.", signature="def count_units(t)", source="two", score=2
        )
        assert tools.save(conn, trace, better) == 2
        for version, success in ((1, True), (2, True), (2, False)):
            use = {"name": "count_units", "version": version, "success": success}
            sql.run(conn, "store/count_tool_use", trace=trace, **use)
        none_such = {"name": "count_units", "version": 7, "success": True}
        sql.run(conn, "store/count_tool_use", trace=trace, **none_such)
        [row] = tools.rows(conn)
        assert (row.version, row.description, row.score) == (2, "Count lines.", 2.0)
        assert (row.uses, row.successes, row.users) == (3, 2, 1)
        assert [(one.version, one.uses, one.successes) for one in tools.versions(conn, "count_units")] == [
            (1, 1, 1), (2, 2, 1)
        ]  # fmt: skip
    found = consult(here, trace, "find_tools", {"query": "count the units of a poem"})
    assert [one["name"] for one in json.loads(found.output)] == ["count_units"]
    assert json.loads(consult(here, trace, "find_tools", {"query": "weather"}).output) == []
    assert json.loads(consult(here, trace, "read_tool", {"name": "count_units"}).output)["source"] == "two"
    assert not consult(here, trace, "read_tool", {"name": "none"}).success


def test_the_best_matching_tool_comes_first(here: Database) -> None:
    number = tool_requests.create("How warm is it?")
    trace = tool_requests.show(number).request.trace_id
    assert trace is not None
    with here.begin() as conn:
        for name, what in (
            ("sort_table", "Sort the rows of a table by a column."),
            ("count_words", "Return how many words a text has."),
            ("count_rows", "Return how many rows a table has."),
        ):
            line = f"def {name}(value: str) -> int"
            tools.save(conn, trace, ToolSaved(name=name, description=what, signature=line, source=name))
    found = json.loads(consult(here, trace, "find_tools", {"query": "count_words: how many words", "limit": 2}).output)
    assert [one["name"] for one in found] == ["count_words", "count_rows"]


# ------------------------------------------------------------------------------------------ the command line


BAD: list[tuple[list[str], str]] = [
    (["show", "9"], "there is no request 9"),
    (["show", "0"], "greater than or equal to 1"),
    (["show", "many"], "integer"),
    (["update", "9", "-o", "x"], "there is no request 9"),
    (["update", "1"], "nothing to change"),
    (["update", "1", "-o", " "], "the objective is empty"),
    (["update", "1", "-r", "x" * 10_001], "a requirement is longer than 10,000 characters"),
    (["update", "1", "-c", "\x07"], "a constraint holds a control character"),
    (["update", "1", *["-c", "x"] * 101], "constraints: give a list of 100 texts at most"),
    (["answer", "1", "yes"], "request 1 has no open question, its status is NOT_STARTED"),
    (["answer", "9", "yes"], "there is no request 9"),
    (["cancel", "1"], "--reason"),
    (["cancel", "1", "--reason", ""], "the reason is empty"),
    (["list", "--status", "DONE"], "there is no status 'DONE'"),
    (["create"], "--objective"),
    (["create", "-o", "x", "--set", "roundz"], "KEY=VALUE"),
]
"""Arguments of `weavegen request`, and the error message."""


def test_bad_input_gives_a_one_line_error(
    here: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool_requests.create("How warm is it?")
    before = scalar(here, "select count(*) from request_changes")
    for arguments, complaint in BAD:
        monkeypatch.setattr(sys, "argv", ["weavegen", "request", *arguments])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        said = capsys.readouterr()
        assert stop.value.code == 2
        assert complaint in said.err
        assert len(said.err.strip().splitlines()) == 1
        assert said.out == ""
    assert scalar(here, "select count(*) from request_changes") == before
    assert scalar(here, "select count(*) from jobs") == 1


def test_the_commands_show_requests_and_tools(
    here: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    number = tool_requests.create("How warm is it?\x1b[31m".replace("\x1b", "~"), constraints=["no [red]network[/red]"])
    trace = tool_requests.show(number).request.trace_id
    assert trace is not None
    with here.begin() as conn:
        made = ToolSaved(
            name="warm", description="How warm.", signature="def warm()", source="def warm():\n    return 3"
        )
        tools.save(conn, trace, made)

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["weavegen", *arguments])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        said = capsys.readouterr()
        assert stop.value.code == 0, said.err
        return said.out

    assert json.loads(run("request", "list", "--json"))[0]["status"] == "NOT_STARTED"
    assert "How warm is it?" in run("request", "list")
    assert "constraint: no [red]network[/red]" in run("request", "show", "1")
    assert json.loads(run("request", "show", "1", "--json"))["changes"][0]["what"] == "created"
    assert json.loads(run("request", "update", "1", "-r", "short", "--json"))["requirements"] == ["short"]
    assert "revision 2" in run("request", "update", "1", "-r", "shorter")
    assert "return 3" in run("tools", "warm")
    assert "How warm." in run("tools")
    assert json.loads(run("tools", "--json"))[0]["version"] == 1
    assert "canceled" in run("request", "cancel", "1", "--reason", "enough")


def test_invalid_requests_are_refused(here: Database) -> None:
    wrong: list[dict[str, Any]] = [
        {"objective": ""}, {"objective": "x\0"}, {"objective": "x", "user": "a\nb"},
        {"objective": "x", "seed": 2**70},
        {"objective": "x", "requirements": "a text"}, {"objective": "x", "settings": {"steps": -1}},
        {"objective": "\ud800"}, {"objective": "x", "constraints": [" "]},
    ]  # fmt: skip
    for bad in wrong:
        with pytest.raises(UsageError):
            tool_requests.create(**bad)
    assert scalar(here, "select count(*) from requests") == 0
    assert scalar(here, "select count(*) from jobs") == 0
