"""agent.run in a real box: an action waits while the subagent's operations run, then the action continues."""

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weavegen import config as configuration
from weavegen.cli.jobs import report
from weavegen.kernel.steps import Execute, Executed, Op
from weavegen.sandbox.environment import Environment, dry_run
from weavegen.sandbox.providers import Limits

step_ids = itertools.count(1)
BOOTSTRAP = """
def act(self):
    agent.subagent("main", None, "Do it all", {}, 60)
    agent.subagent("a", "main", "A part", {"n": "integer"}, 5)
    agent.subagent("b", "a", "A part of that part", {"n": "integer"}, 5)
    return "set up"

self.add_action("Set up", act)
"""


@pytest.fixture
def environment() -> Iterator[Environment]:
    with tempfile.TemporaryDirectory(prefix="weavegen-test-") as home:
        Path(home).chmod(0o711)
        environment = Environment.start(configuration.load({"WEAVEGEN_HOME": home}), 1)
        assert do(environment, "bootstrap", source=BOOTSTRAP).value == "set up"
        yield environment
        environment.stop(keep_workspace=False)


def do(environment: Environment, op: Op, subagent: str = "main", source: str = "", **options: Any) -> Executed:
    return environment.execute(next(step_ids), Execute(op=op, subagent=subagent, source=source), **options)


ABOUT_A = {"name": "a", "children": ["b"], "schema": {"n": "integer"}}
"""What `agent.run` says about the subagent besides what it returned."""


def act(environment: Environment, subagent: str, body: str, **options: Any) -> Executed:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    source = f"def action_test(self):\n{lines}\nself.add_action('Test', action_test)\n"
    step = Execute(op="run", subagent=subagent, type="action", source=source)  # type: ignore[arg-type]
    return environment.execute(next(step_ids), step, **options)


def test_an_action_waits_for_a_subagent_and_gets_its_returned_value(environment: Environment) -> None:
    waiting = act(
        environment,
        "main",
        'print("before")\nassert self.name == "main", "Am I main?"\ngiven = agent.run("a")\nprint("after")\n'
        'assert given["n"] == 3, "Are there three?"\nreturn [self.name, given]',
    )
    assert (waiting.waits_for, waiting.error, waiting.output) == ("a", None, "before\n")
    assert waiting.registered == ("Test",)
    assert [label.question for label in waiting.assertions] == ["Am I main?"]

    seen = do(environment, "begin", "a")
    assert seen.views == ()
    returned = act(environment, "a", 'self.return_to_caller({"n": 3})\nreturn self.name')
    assert returned.value == "a"
    assert [subagent.completed for subagent in do(environment, "evaluate", "a").subagents] == [False, True, False]

    done = do(environment, "resume")
    assert (done.waits_for, done.error, done.output) == (None, None, "after\n")
    assert done.value == ["main", {**ABOUT_A, "n": 3}]
    assert [label.question for label in done.assertions] == ["Are there three?"]
    assert do(environment, "run", source="assert self.name == 'main'").error is None


def test_a_subagent_that_ran_out_of_time_gives_none_and_can_run_again(environment: Environment) -> None:
    assert act(environment, "main", 'return agent.run("a"), agent.run("a")').waits_for == "a"
    again = do(environment, "resume")
    assert again.waits_for == "a"
    act(environment, "a", 'self.return_to_caller({"n": 4})')
    assert do(environment, "resume").value == [None, {**ABOUT_A, "n": 4}]


def test_subagents_of_subagents(environment: Environment) -> None:
    assert act(environment, "main", 'return ["main", agent.run("a")]').waits_for == "a"
    waiting = act(environment, "a", 'n = agent.run("b")["n"]\nself.return_to_caller({"n": n + 1})\nreturn self.name')
    assert waiting.waits_for == "b"
    assert act(environment, "b", 'self.return_to_caller({"n": 1})\nreturn self.name').value == "b"
    assert do(environment, "resume", "a").value == "a"
    assert do(environment, "resume").value == ["main", {**ABOUT_A, "n": 2}]


def test_an_exception_of_a_subagent_is_not_raised_in_its_caller(environment: Environment) -> None:
    act(environment, "main", 'return agent.run("a")')
    failed = act(environment, "a", "return 1 / 0")
    assert failed.error is not None
    assert failed.error.type == "ZeroDivisionError"
    refused = act(environment, "a", 'self.return_to_caller({"n": "many"})')
    assert refused.error is not None
    assert "integer" in refused.error.message
    assert do(environment, "resume").error is None


def test_an_exception_after_the_subagents_ticks_belongs_to_the_caller(environment: Environment) -> None:
    act(environment, "main", 'return agent.run("a")["n"]')
    failed = do(environment, "resume")
    assert failed.error is not None
    assert (failed.error.type, failed.error.stage) == ("TypeError", "callback")
    assert "agent.run" in failed.error.traceback


@pytest.mark.parametrize("name", ["main", "a"])
def test_a_running_agent_can_not_be_run_again(environment: Environment, name: str) -> None:
    act(environment, "main", 'return agent.run("a")')
    refused = act(environment, "a", f'return agent.run("{name}")')
    assert refused.error is not None
    assert "at work already" in refused.error.message
    assert do(environment, "resume").error is None


def test_only_an_action_can_run_a_subagent(environment: Environment) -> None:
    view = 'def view(self):\n    return agent.run("a")\nself.add_observation_view("V", view)'
    assert do(environment, "run", source=view).error is None
    shown = do(environment, "begin").views[0]
    assert shown.error is not None
    assert "Only an action" in shown.error.message
    thread = (
        "import threading\nseen = []\ndef work():\n    try:\n        agent.run('a')\n"
        "    except Exception as error:\n        seen.append(str(error))\n"
        "thread = threading.Thread(target=work)\nthread.start()\nthread.join()\nreturn seen"
    )
    assert "not in a thread" in act(environment, "main", thread).value[0]


def test_a_restarted_tick_ends_the_waiting_actions(environment: Environment) -> None:
    body = 'try:\n    agent.run("{}")\nfinally:\n    self.update_cache("unwound", True)'
    act(environment, "main", body.format("a"))
    act(environment, "a", body.format("b"))
    assert do(environment, "begin", "b").error is None
    assert do(environment, "begin", "a").error is None  # a's tick restarts
    assert act(environment, "a", 'return self.get_cache("unwound")').value is True
    act(environment, "a", body.format("b"))
    assert do(environment, "begin").error is None  # and then main's tick, while both actions wait
    assert act(environment, "main", 'return self.get_cache("unwound"), self.name').value == [True, "main"]
    act(environment, "main", 'return agent.run("a")')
    assert do(environment, "resume").error is None


def test_the_callers_time_limit_stops_while_it_waits(environment: Environment) -> None:
    limits = Limits(seconds=1.0, grace=5.0)
    act(environment, "main", 'agent.run("a")\nwhile True:\n    pass', limits=limits)
    for _ in range(2):
        assert act(environment, "a", "time.sleep(0.7)\nreturn 1", limits=limits).value == 1
    slow = act(environment, "a", "time.sleep(30)", limits=limits)
    assert slow.error is not None
    assert slow.error.type == "TimeoutError"
    stopped = do(environment, "resume", limits=limits)
    assert stopped.error is not None
    assert stopped.error.type == "TimeoutError"


def test_only_a_waiting_action_can_be_resumed(environment: Environment) -> None:
    refused = do(environment, "resume")
    assert refused.error is not None
    assert "no action waits" in refused.error.message
    refused = do(environment, "begin", "nobody")
    assert refused.error is not None
    assert "no subagent" in refused.error.message


@pytest.mark.parametrize(
    ("asks", "what"),
    [
        ('agent.run("a")', "a call of subagent 'a'"),
        ('self.generate_block("debug")', "a block of type debug"),
        ('agent.research("Who?")', "a task for another agent"),
    ],
)
def test_a_dry_run_ends_where_it_would_have_to_wait(asks: str, what: str) -> None:
    source = BOOTSTRAP.replace('return "set up"', f"return {asks}")
    [executed] = dry_run(configuration.load({}), source, ops=("bootstrap", "evaluate", "begin"))
    assert executed.error is None
    told = f"The first tick runs up to {what}. Only a model can continue from there."
    assert list(report({"bootstrap": executed}, [])) == [told]
