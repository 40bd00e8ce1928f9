"""Real environments in real sandboxes: the protocol, hostile callbacks, and the isolation of boxes."""

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.waiting import until
from weavegen import config as configuration
from weavegen.config import Config
from weavegen.engine import execution
from weavegen.errors import EnvironmentFailure, ModelError, TransientError, UsageError
from weavegen.kernel.steps import Execute, Executed, Failure, Writes
from weavegen.sandbox import packages
from weavegen.sandbox.bubblewrap import Bubblewrap
from weavegen.sandbox.client_session import Ask, BlockBrief, CompleteRequest, undecided
from weavegen.sandbox.environment import Environment, dry_run, log_path, remove, running
from weavegen.sandbox.providers import Box, Handle, Limits
from weavegen.store import traces
from weavegen.trace.blocks import BlockType

QUICK = Limits(seconds=1.0, grace=1.0)
TICTACTOE = Path("bootstraps/tictactoe.py").read_text()
EMPTY = "def action_nothing(self):\n    return 1\n\nself.add_action('Nothing', action_nothing)\n"

step_ids = itertools.count(1)
trace_ids = itertools.count(1)


@pytest.fixture(scope="module")
def config() -> Iterator[Config]:
    with tempfile.TemporaryDirectory(prefix="weavegen-test-") as home:
        Path(home).chmod(0o711)
        yield configuration.load({"WEAVEGEN_HOME": home})


def test_steps_that_ran_out_of_time_are_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they did before they timed out stayed in the process; only steps that killed it are left out."""
    late = Failure(type="TimeLimit", message="", traceback="", stage="process")
    past = [
        (1, Execute(op="call", source="{}"), Executed(error=late), None),
        (2, Execute(op="call", source="{}"), execution.lost("it was killed"), None),
        (3, Execute(op="call", source="{}"), Executed(), None),
    ]
    again: list[int] = []

    def run_in(environment: object, id: int, step: Execute, until: object = None) -> Executed:
        again.append(id)
        return past[id - 1][2]

    trace = object.__new__(execution.Execution)
    trace.trace_id = 1
    monkeypatch.setattr(trace, "run_in", run_in)
    monkeypatch.setattr(execution, "single", lambda: SimpleNamespace(connect=contextlib.nullcontext))
    monkeypatch.setattr(traces, "event", lambda *_: None)
    trace.rebuild(cast("Environment", None), past, None)
    assert again == [1, 3]


Start = Callable[..., Environment]


@pytest.fixture
def start(config: Config) -> Iterator[Start]:
    """Starts environments. Unless another bootstrap is given, theirs does nothing."""
    started: list[Environment] = []

    def start(source: str | None = EMPTY, **options: Any) -> Environment:
        environment = Environment.start(config, next(trace_ids), **options)
        started.append(environment)
        if source is not None:
            assert environment.execute(next(step_ids), Execute(op="bootstrap", source=source)).error is None
        return environment

    yield start
    for environment in started:
        environment.stop(keep_workspace=False)


@pytest.fixture
def environment(start: Start) -> Environment:
    return start()


def act(
    environment: Environment, body: str, limits: Limits | None = None, ask: Ask = undecided, **options: Any
) -> Executed:
    """Run an action whose callback has this body."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    source = f"def action_test(self):\n{lines}\nself.add_action('Test', action_test)\n"
    step = Execute(op="run", type="action", source=source)  # type: ignore[arg-type]
    return environment.execute(next(step_ids), step, ask=ask, limits=limits, **options)


def texts_asked(environment: Environment, body: str, times: int = 1) -> list[CompleteRequest]:
    """The requests for texts that an action with this body makes, which runs `times` times."""
    asked: list[CompleteRequest] = []

    def complete(request: CompleteRequest) -> list[str]:
        asked.append(request)
        return [""]

    for _ in range(times):
        assert act(environment, body, complete=complete).error is None
    return asked


def value(environment: Environment, body: str, **options: Any) -> Any:
    executed = act(environment, body, **options)
    assert executed.error is None, executed.error
    return executed.value


def run(environment: Environment, source: str, **options: Any) -> Executed:
    return environment.execute(next(step_ids), Execute(op="run", source=source), **options)


class TestOperations:
    def test_a_tick(self, start: Start) -> None:
        environment = start(None, params={"beans": 3})
        source = (
            "beans = args.params['beans']\n"
            "def view(self):\n    return {'beans': beans}\n"
            "def bad(self):\n    return 1 / 0\n"
            "async def enough(self):\n    return beans > 2\n"
            "def act(self):\n    self.task.add_evaluation('Enough?', enough)\n    return beans\n"
            "self.add_observation_view('Beans', view)\nself.add_observation_view('Bad', bad)\n"
            "self.add_action('Count', act)\nself.add_evaluation('Bad?', bad)\n"
        )
        executed = environment.execute(next(step_ids), Execute(op="bootstrap", source=source))
        assert executed.error is None
        assert executed.registered == ("Count", "Bad?", "Beans", "Bad")
        assert executed.value == 3
        assert [subagent.name for subagent in executed.subagents] == ["main"]

        executed = environment.execute(next(step_ids), Execute(op="evaluate"))
        assert [(e.title, e.scope, e.value, e.error and e.error.type) for e in executed.evaluations] == [
            ("Enough?", "task", True, None),
            ("Bad?", "tick", None, "ZeroDivisionError"),
        ]
        assert executed.subagents[0].evaluations == executed.evaluations[:1]

        executed = environment.execute(next(step_ids), Execute(op="begin"))
        assert executed.views[0].text == '{"beans": 3}'
        assert executed.views[1].error is not None
        assert "return 1 / 0" in executed.views[1].error.traceback
        executed = environment.execute(next(step_ids), Execute(op="evaluate"))
        assert [e.title for e in executed.evaluations] == ["Enough?"]

        assert value(environment, "assert self.name == 'main'\nself.return_to_caller({'n': beans})\nreturn 1") == 1
        executed = environment.execute(next(step_ids), Execute(op="begin"))
        assert executed.subagents[0].completed
        assert executed.subagents[0].returned == {"n": 3, "enough": True}

    def test_blocks_share_one_namespace(self, environment: Environment) -> None:
        assert run(environment, "import math\nself.update_cache('x', math.tau)\ndef f(): return 7").error is None
        assert value(environment, "return [f(), round(self.get_cache('x'), 2), math.inf]") == [7, 6.28, "inf"]

    @pytest.mark.parametrize(
        ("source", "stage", "name"),
        [
            ("def f(:", "compile", "SyntaxError"),
            ("x = 'a\x00b'", "compile", "ValueError|SyntaxError"),
            ("import nonsense_of_mine", "register", "ModuleNotFoundError"),
            ("pass", "register", "ValueError"),
            ("def f(self): self.nothing\nself.add_action('t', f)", "callback", "AttributeError"),
            ("self.add_action('t', lambda self: 1)", "register", "TypeError"),
            ("(" * 5000, "compile", "MemoryError|SyntaxError|RecursionError"),
        ],
    )
    def test_stages_of_failure(self, environment: Environment, source: str, stage: str, name: str) -> None:
        step = Execute(op="run", type="action", source=source)  # type: ignore[arg-type]
        error = environment.execute(next(step_ids), step).error
        assert error is not None
        assert error.stage == stage
        assert error.type in name.split("|")

    @pytest.mark.parametrize(
        ("source", "stage", "name"),
        [
            ("1 / 0", "register", "ZeroDivisionError"),
            ("x = 1", "register", "ValueError"),
            ("def f(self): 1 / 0\nself.add_action('a', f)", "callback", "ZeroDivisionError"),
            ("exit()", "register", "SystemExit"),
            ("raise SystemExit", "register", "SystemExit"),
        ],
    )
    def test_a_bootstrap_without_a_working_action_fails(self, start: Start, source: str, stage: str, name: str) -> None:
        error = start(None).execute(next(step_ids), Execute(op="bootstrap", source=source)).error
        assert error is not None
        assert (error.stage, error.type) == (stage, name)

    def test_blocks_may_use_the_names_that_the_first_block_defines(self, environment: Environment) -> None:
        source = (
            "def action_use(self: Subagent) -> bool:\n"
            "    check_schema({'n': 1}, {'n': 'integer'})\n"
            "    use: Callback | Callable[[Task, Tick], None] = len\n"
            "    return isinstance(agent, Tree) and isinstance(self.task, Task) and type(self.current_tick) is Tick\n"
            "self.add_action('Use', action_use)\n"
        )
        step = Execute(op="run", type=BlockType.ACTION, source=source)
        assert environment.execute(next(step_ids), step).value is True

    def test_blocks_find_what_every_program_has(self, environment: Environment) -> None:
        body = "import argparse, sys\nargparse.ArgumentParser().parse_args()\nhelp(len)\n"
        body += "import math, multiprocessing\nwith multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        body += "    roots = pool.map(math.sqrt, [4])\n"
        executed = act(environment, body + "return [sys.argv[1:], os.path.exists(__file__), repr(quit), roots]")
        assert executed.value == [[], True, "Use quit() or Ctrl-D (i.e. EOF) to exit", [2.0]]
        assert "Return the number of items in a container." in executed.output

    @pytest.mark.parametrize("main", ["agent.subagent('main', self.name, 'Do it', {}, 5)", ""])
    def test_subagents_of_the_bootstrap_file_are_those_of_main(self, start: Start, main: str) -> None:
        environment = start(
            f"def act(self):\n    {main}\n    agent.subagent('helper', self.name, 'Help', {{}}, 5)\n"
            "    agent.subagent('second', 'helper', 'Help', {}, 5)\n"
            "self.add_action('Begin', act)\n"
        )
        executed = act(environment, "return [self.children, 'Help' in agent.view_board()]")
        assert executed.value == [["helper"], True]
        parents = {subagent.name: subagent.parent for subagent in executed.subagents}
        assert parents == {"main": None, "helper": "main", "second": "helper"}

    def test_what_the_first_action_does_on_main_counts_as_on_its_stand_in(self, start: Start) -> None:
        source = (
            "def is_here(self):\n    return True\n"
            "def act(self):\n    main = agent.subagent('main', None, 'Do it', {}, 5)\n"
            "    main.add_evaluation('On main?', is_here)\n    main.plan(2)\n    self.block_size = 384\n"
            "self.add_action('Begin', act)\nself.add_evaluation('On the stand-in?', is_here)\n"
        )
        environment = start(source)
        checked = environment.execute(next(step_ids), Execute(op="evaluate"))
        assert [(one.title, one.scope) for one in checked.evaluations] == [
            ("On the stand-in?", "tick"),
            ("On main?", "tick"),
        ]
        assert checked.subagents[0].block_size == 384
        assert environment.execute(next(step_ids), Execute(op="begin")).imagined
        own = start(source.replace("main.plan(2)", "main.block_size = 192"))
        assert own.execute(next(step_ids), Execute(op="begin")).subagents[0].block_size == 192

    def test_a_plan_ends_where_one_of_its_own_actions_returns(self, environment: Environment) -> None:
        trace = [BlockBrief(0, "action", "self.return_to_caller({})"), BlockBrief(1, "return", "")]

        def begin() -> bool:
            return environment.execute(next(step_ids), Execute(op="begin"), lambda since: trace[since:]).imagined

        def imagine(*blocks: tuple[str, str]) -> None:
            for type, body in blocks:
                trace.append(BlockBrief(len(trace), type, body))

        value(environment, "self.plan(3)")
        trace.append(BlockBrief(2, "action", "self.plan(3)  # later: self.return_to_caller(True)"))
        assert begin()
        imagine(("action", "self.return_to_caller({})"), ("error", "ValueError"), ("action", "look()"), ("outcome", ""))
        assert begin()
        imagine(("action", "self.return_to_caller({})"), ("expectation", ""), ("error", "KeyError"), ("outcome", ""))
        assert not begin()
        assert not begin()

    def test_only_new_blocks_are_sent(self, environment: Environment) -> None:
        asked: list[int] = []
        trace = [BlockBrief(i, "action" if i % 2 else "error", f"body {i}" * 20_000) for i in range(20)]

        def blocks(since: int) -> list[BlockBrief]:
            asked.append(since)
            return trace[since:]

        last = "agent.find_last_block_of_type('action')['index']"
        source = f"self.update_cache('seen', [agent.current_block_index(), {last}])"
        assert run(environment, source, blocks=blocks).error is None
        assert value(environment, "return self.get_cache('seen')") == [20, 19]
        trace.append(BlockBrief(20, "action", "boom()"))
        error = run(environment, "boom()", blocks=blocks).error
        assert asked == [0, 20]
        assert error is not None
        assert 'File "/app/block_20.py", line 1' in error.traceback
        assert "boom()" in error.traceback

    def test_a_trace_is_reproducible(self, start: Start) -> None:
        body = "return [random.random(), list({'a', 'b', 'c', 'd', 'e'}), repr(self)]"
        first, equal, other = (value(start(seed=seed), body) for seed in (5, 5, 6))
        assert first == equal
        assert first != other

    def test_a_restarted_environment_is_empty(self, config: Config, environment: Environment) -> None:
        value(environment, "open('mine', 'w').write('yes')")
        again = Environment.start(config, environment.trace_id)
        assert not environment.handle.alive()
        environment.stop()  # the old handle comes too late: it must not remove the new socket
        assert again.execute(next(step_ids), Execute(op="bootstrap", source=EMPTY)).error is None
        assert value(again, "return os.path.exists('mine')") is False
        again.stop()

    def test_running_environments_can_be_listed_and_removed(self, config: Config, environment: Environment) -> None:
        value(environment, "open('file', 'w').write('x')")
        assert environment.trace_id in [other.trace_id for other in running(config)]
        remove(config, environment.trace_id)
        assert environment.trace_id not in [other.trace_id for other in running(config)]
        assert not environment.workspace.exists()
        assert not environment.socket_path.exists()
        remove(config, environment.trace_id)

    @pytest.mark.parametrize("replaced", [True, False])
    def test_another_worker_takes_over_during_the_start(
        self, config: Config, monkeypatch: pytest.MonkeyPatch, replaced: bool
    ) -> None:
        """As after a pause of this worker: its lease has expired, and the trace is another worker's."""
        trace_id, ping, others = next(trace_ids), Environment.ping, []

        def answer_late(self: Environment, seconds: float) -> None:
            ping(self, seconds)
            monkeypatch.setattr(Environment, "ping", ping)
            remove(config, trace_id)
            if replaced:
                others.append(Environment.start(config, trace_id))
                log_path(config, trace_id).touch()  # the other has not looked at its empty log yet

        monkeypatch.setattr(Environment, "ping", answer_late)
        environment = Environment.start(config, trace_id)
        assert not environment.handle.alive()
        assert log_path(config, trace_id).exists() == replaced
        assert all(other.handle.alive() for other in others)
        remove(config, trace_id)

    def test_one_worker_at_a_time_starts_or_removes_an_environment(self, config: Config) -> None:
        trace_id = next(trace_ids)

        def work(number: int) -> None:
            for _ in range(3):
                if number % 2:
                    with contextlib.suppress(EnvironmentFailure):  # the others remove what this one starts
                        Environment.start(config, trace_id)
                else:
                    remove(config, trace_id)

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))
        remove(config, trace_id)
        assert trace_id not in [other.trace_id for other in running(config)]

    def test_dry_run(self, config: Config) -> None:
        [executed] = dry_run(config, TICTACTOE, {"opponent": "minimax"})
        assert executed.error is None
        error = dry_run(config, "1 / 0", ops=("bootstrap", "evaluate"))[-1].error
        assert error is not None
        assert error.type == "ZeroDivisionError"

    def test_a_dry_run_leaves_nothing_and_works_with_a_long_tmpdir(
        self, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scratch = tmp_path / ("deep" * 20)
        scratch.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(scratch))
        [executed] = dry_run(config, TICTACTOE)
        assert executed.error is None
        assert list(scratch.iterdir()) == []


class TestAsInWeaveAgent:
    """What files written for weave-agent rely on."""

    def test_the_action_of_a_bootstrap_file_may_wait_longer_than_other_callbacks(self, config: Config) -> None:
        """weave-agent has no time limit, and files wait a minute in their first action for a server or a message."""
        source = (
            "def wait(self):\n    time.sleep(1.5)\n\n"
            "self.add_action('Wait', wait)\nself.task.add_evaluation('Is the wait over?', wait)\n"
        )
        acted, checked = dry_run(config, source, limits=Limits(seconds=1), ops=("bootstrap", "evaluate"))
        assert acted.error is None
        assert [one.error and one.error.type for one in checked.evaluations] == ["TimeoutError"]
        assert Limits().of("bootstrap").seconds >= 2 * 60

    @pytest.mark.parametrize(
        "call",
        [
            "simple_evaluate_outputs(make_simple_score_prompt('Is it so?'), ['a', 'b'])",
            "simple_bayes_evaluate_outputs('Is it so?', ['Is it?'], ['a', 'b'])",
            "agent.view_board()",
            "self.task.run_evaluations()",
        ],
    )
    def test_coroutines_of_weave_agent_can_be_awaited_or_called(self, environment: Environment, call: str) -> None:
        body = f"""
import asyncio
async def awaited():
    return await {call}
return [asyncio.run(awaited()) == {call}, type({call}).__mro__[-2].__name__]
"""
        equal, kind = value(environment, body.strip())
        assert equal
        assert kind in ("list", "str", "dict")

    def test_coroutines_of_weave_agent_can_be_given_to_asyncio(self, environment: Environment) -> None:
        body = """
import asyncio
ask = make_simple_score_prompt('Is it so?')
async def action():
    asked = [simple_evaluate_outputs(ask, [text]) for text in 'ab']
    task = asyncio.create_task(self.task.run_evaluations())
    return [*await asyncio.gather(*asked, agent.view_board()), await asyncio.wait_for(task, 1)]
one, two, board, evaluated = asyncio.run(action())
return [one, two, board == agent.view_board(), evaluated, asyncio.run(simple_evaluate_outputs(ask, 'a'))]
"""
        assert value(environment, body.strip()) == [[0.5], [0.5], True, {}, [0.5]]

    @pytest.mark.parametrize(
        ("size", "tokens"), [('"full"', 768), ('"half"', 384), ('"quarter"', 192), ("200", 384), ("None", 768)]
    )
    def test_sizes_of_blocks_have_names(self, environment: Environment, size: str, tokens: int) -> None:
        executed = act(environment, f"self.block_size = {size}")
        assert executed.error is None
        assert [state.block_size for state in executed.subagents][:1] == [tokens]

    def test_an_agent_plans_some_ticks_or_until_it_imagines_that_it_returns(self, start: Start) -> None:
        plans = EMPTY.replace("return 1", "self.plan(2)\n    self.add_observation_view('One', lambda self: 1)")
        environment, imagined = start(plans), []
        for _ in range(3):
            [view] = (begun := environment.execute(next(step_ids), Execute(op="begin"))).views
            assert (view.title, view.text) == ("One", "" if begun.imagined else "1")
            imagined.append(begun.imagined)
        assert imagined == [True, True, False]
        assert act(environment, "self.plan(16)").error is None
        returned = [BlockBrief(0, "action", "def action_end(self):\n    self.return_to_caller({})")]
        begin = Execute(op="begin")
        assert environment.execute(next(step_ids), begin).imagined
        assert not environment.execute(next(step_ids), begin, blocks=lambda since: returned[since:]).imagined
        assert not environment.execute(next(step_ids), begin).imagined
        for ticks in ("0", "17", "-1"):
            error = act(environment, f"self.plan({ticks})").error
            assert error is not None
            assert error.message == f"a plan has 1 to 16 ticks, not {ticks}"

    def test_the_memory_finds_blocks_by_their_rarest_words(self, environment: Environment) -> None:
        bodies = [
            "def action_a(self): open the gate",
            "def action_b(self): the lantern is in the cellar",
            "def action_c(self): " + " ".join(f"word{number}" for number in range(200)) + " lantern",
            "def action_d(self): close the gate",
        ]
        trace = [BlockBrief(number, "action", text) for number, text in enumerate(bodies)]
        body = """
found = self.memory.search("Where is that LANTERN?")
async def earlier():
    return await self.memory.search("the gate", before=3, limit=1)
def indices(blocks):
    return [block["index"] for block in blocks]
import asyncio
gates = [indices(self.memory.search("gate", limit=1)), indices(asyncio.run(earlier()))]
return [found[0], indices(found), gates, self.memory.search("dragon"), self.memory.search("", limit=-1)]
"""
        first = {"type": "action", "index": 1, "body": bodies[1]}
        found = value(environment, body.strip(), blocks=lambda known: trace[known:])
        assert found == [first, [1, 2], [[3], [0]], [], []]

    def test_evaluations_that_are_coroutines_run_while_a_coroutine_runs(self, environment: Environment) -> None:
        body = """
import asyncio
async def enough(self):
    await asyncio.sleep(0)
    return True
self.task.add_evaluation('Enough?', enough)
async def finish():
    await asyncio.sleep(0)
    self.return_to_caller({})
    await asyncio.sleep(0)
    return self.returned
return finish()
"""
        assert value(environment, body.strip()) == {"enough": True}

    def test_a_coroutine_leaves_the_event_loop_of_other_blocks(self, environment: Environment) -> None:
        assert value(environment, "async def one(): return 1\nreturn one()") == 1
        body = "import asyncio\nreturn asyncio.get_event_loop().run_until_complete(asyncio.sleep(0, 2))"
        assert [value(environment, body), value(environment, body)] == [2, 2]

    def test_what_can_be_awaited_can_be_returned(self, environment: Environment) -> None:
        question = "simple_evaluate_outputs(make_simple_score_prompt('Is it so?'), ['a'])"
        assert value(environment, f"return {question}", ask=lambda prompts: [(0.5, 0.5)]) == [0.5]
        body = f"async def later(): return await {question}\nreturn later()"
        assert value(environment, body, ask=lambda prompts: [(0.5, 0.5)]) == [0.5]


class TestDelivery:
    def test_a_step_is_run_once(self, environment: Environment) -> None:
        step = Execute(op="run", source="self.update_cache('n', (self.get_cache('n') or 0) + 1)\nprint('ran')")
        first = environment.execute(1_000_000, step)
        for _ in range(3):
            assert environment.execute(1_000_000, step) == first
        assert value(environment, "return self.get_cache('n')") == 1

    def test_a_second_worker_attaches_to_a_running_step(self, environment: Environment) -> None:
        step = Execute(op="run", source="import time\ntime.sleep(0.5)\nself.update_cache('n', 1)\nprint('once')")
        outcomes: list[object] = []

        def first() -> None:
            try:
                outcomes.append(environment.execute(2_000_000, step))
            except TransientError as error:
                outcomes.append(error)

        thread = threading.Thread(target=first)
        thread.start()
        time.sleep(0.2)
        executed = environment.execute(2_000_000, step)
        thread.join()
        assert executed.output == "once\n"
        assert isinstance(outcomes[0], TransientError)

    def test_a_question_to_the_model_survives_its_worker(self, environment: Environment) -> None:
        body = "return simple_evaluate_outputs(make_simple_score_prompt('Is it?'), ['a', 'b'])"
        asked: list[list[str]] = []

        def killed(prompts: list[str]) -> list[tuple[float, float]]:
            raise TransientError("the pool is busy")

        def answer(prompts: list[str]) -> list[tuple[float, float]]:
            asked.append(prompts)
            return [(0.75, 0.25), (0.2, 0.2)]

        source = f"def f(self):\n    {body}\nself.add_action('Ask', f)"
        step = Execute(op="run", type="action", source=source)  # type: ignore[arg-type]
        with pytest.raises(TransientError):
            environment.execute(3_000_000, step, ask=killed)
        executed = environment.execute(3_000_000, step, ask=answer)
        assert executed.value == pytest.approx([0.75, 0.5])
        assert len(asked) == 1
        assert asked[0][0].startswith("a\n")
        assert asked[0][0].endswith("#q: Is it? ")

    def test_a_question_that_the_model_refuses_fails_the_callback(self, environment: Environment) -> None:
        def refuse(prompts: list[str]) -> list[tuple[float, float]]:
            raise ModelError("the prompt is too long")

        body = "from weave import make_score_prompt_vllm\nreturn simple_evaluate_outputs(str, 'x')"
        error = act(environment, body, ask=refuse).error
        assert error is not None
        assert "too long" in error.message

    def test_a_forked_process_can_not_ask_and_threads_can(self, environment: Environment) -> None:
        body = (
            "from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor\n"
            "def ask(text): return simple_evaluate_outputs(str, text)\n"
            "with {}(1) as pool:\n    return pool.submit(ask, 'x').result()"
        )
        assert value(environment, body.format("ThreadPoolExecutor")) == [0.5]
        error = act(environment, "global ask\n" + body.format("ProcessPoolExecutor")).error
        assert error is not None
        assert error.message == "only the trace's own process can ask: use threads instead of processes"

    def test_time_of_model_calls_does_not_count(self, environment: Environment) -> None:
        def slow(prompts: list[str]) -> list[tuple[float, float]]:
            time.sleep(0.6)
            return undecided(prompts)

        limits = Limits(seconds=0.4, grace=0.4)
        assert value(environment, "return simple_evaluate_outputs(str, 'x')", ask=slow, limits=limits) == [0.5]

    def test_an_environment_survives_the_worker_that_started_it(self, config: Config) -> None:
        trace_id = next(trace_ids)
        program = (
            "import os, signal, sys\nfrom weavegen import config\n"
            "from weavegen.sandbox.environment import Environment\nfrom weavegen.kernel.steps import Execute\n"
            f"environment = Environment.start(config.load(), {trace_id})\n"
            f"environment.execute(1, Execute(op='bootstrap', source={EMPTY!r}))\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        environ = {**os.environ, "WEAVEGEN_HOME": str(config.home)}
        done = subprocess.run([sys.executable, "-c", program], env=environ, timeout=20, check=False)
        assert done.returncode == -signal.SIGKILL
        environment = Environment.find(config, trace_id)
        assert environment is not None
        assert value(environment, "return self.name") == "main"
        environment.stop()
        assert not environment.handle.alive()
        assert Environment.find(config, trace_id) is None


class TestHostileCallbacks:
    @pytest.mark.parametrize(
        "body",
        [
            "return float('nan')",
            "return [float('inf'), {'a': -float('inf')}]",
            "x = []\nx.append(x)\nreturn x",
            "return 'x' * 10**7",
            "return 10 ** 5000",
            "return '\\ud800\\x00'",
            "return {'\\ud800': object()}",
            "return lambda: 1",
            "class C:\n    def __repr__(self): raise SystemExit\nreturn C()",
            "class C(str):\n    def __str__(self): return 3\nreturn C('a')",
            "class C(dict):\n    def items(self): return 3\nreturn C(a=1)",
            "class E(Exception):\n    def __str__(self): raise KeyError\nraise E",
            "class E(Exception):\n    __module__ = 3\nraise E",
            "raise SystemExit(3)",
            "raise KeyboardInterrupt",
            "raise BaseExceptionGroup('many', [KeyError(1), SystemExit()])",
            "e = ValueError('\\ud800\\x00' * 10**6)\ne.__cause__ = e\nraise e",
            "def f(): return f()\nreturn f()",
            "async def f(): raise GeneratorExit\nreturn f()",
            "import sys\nsys.stdout.close()\nsys.stderr = None\nsys.exit('bye')",
            "import os\nos.close(1)\nos.close(2)",
            "import os\nreturn os.fork()",
            "import os\nos.mkdir('d')\nos.chdir('d')\nos.rmdir('/app/d')\nreturn 1",
            "import json\njson.dumps = None\nimport builtins\nbuiltins.print = 3",
            "import sys\nsys.modules.clear()",
            "import sys\nsys.setrecursionlimit(60)",
            "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)",
            "self.observation_views.append(3)\nself.current_tick.evaluations.append({})",
            "self.task.description = '\\ud800' * 10**6\nself.schema = {1: object()}",
            "self.time_budget = 'soon'",
            "agent.agents = None",
            "self.current_tick = None",
            "for i in range(500): agent.subagent(str(i), 'main', 'x' * 10**4, {}, 1)",
        ],
    )
    def test_the_protocol_survives(self, environment: Environment, body: str) -> None:
        act(environment, body, limits=Limits(seconds=5))
        environment.execute(next(step_ids), Execute(op="begin"))
        environment.execute(next(step_ids), Execute(op="evaluate"))
        assert act(environment, "print('still here')\nreturn 1").output in ("still here\n", "")
        assert environment.handle.alive()

    @pytest.mark.parametrize(
        "body",
        [
            "while True: pass",
            "import time\ntime.sleep(100)",
            "while True:\n    try:\n        while True: pass\n    except Exception:\n        pass",
            "n = 0\nwhile n < 2:\n    try:\n        while True: pass\n    except BaseException:\n        n += 1",
            "import subprocess\nsubprocess.run(['sleep', '100'])",
            "import threading\nthreading.Event().wait()",
            "import asyncio\nreturn asyncio.sleep(100)",
        ],
    )
    def test_the_time_of_a_callback_is_limited(self, environment: Environment, body: str) -> None:
        executed = act(environment, body, limits=Limits(seconds=0.3, grace=5))
        if "n < 2" not in body:
            assert executed.error is not None
            assert executed.error.type == "TimeoutError"
        assert value(environment, "return 1") == 1

    def test_what_a_command_printed_before_its_operations_time_was_up_is_returned(
        self, environment: Environment
    ) -> None:
        call = {"name": "terminal", "arguments": {"command": "echo begun; sleep 60", "timeout": 60.0}}
        step = Execute(op="call", source=json.dumps(call))
        executed = environment.execute(next(step_ids), step, limits=Limits(seconds=4))
        assert executed.error is None
        assert executed.value["output"].startswith("begun\n\n(ended after ")

    def test_an_evaluation_that_hangs_leaves_time_to_the_others(self, environment: Environment) -> None:
        source = (
            "import time\ndef a(self): time.sleep(9)\ndef b(self): return 1\n"
            "self.add_evaluation('a', a)\nself.add_evaluation('b', b)"
        )
        assert run(environment, source).error is None
        executed = environment.execute(next(step_ids), Execute(op="evaluate"), limits=QUICK)
        assert executed.evaluations[0].error is not None
        assert executed.evaluations[1].value == 1

    @pytest.mark.parametrize(
        ("body", "word"),
        [
            ("import os\nos._exit(0)", "died"),
            ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "died"),
            ("import ctypes\nctypes.string_at(0)", "died"),
            ("import os\nos.closerange(3, 100)", "died|killed"),
            ("sum(range(10**13))", "killed"),
        ],
    )
    def test_the_death_of_the_process_is_reported(self, environment: Environment, body: str, word: str) -> None:
        began = time.monotonic()
        with pytest.raises(EnvironmentFailure, match=word):
            act(environment, body, limits=Limits(seconds=0.3, grace=0.3))
        assert time.monotonic() - began < 2
        assert not environment.handle.alive()
        with pytest.raises(EnvironmentFailure):
            act(environment, "return 1")

    def test_a_box_whose_start_takes_too_long_leaves_no_process(
        self, config: Config, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read_info = Bubblewrap.read_info
        begun: list[Handle] = []

        def too_late(sandbox: Bubblewrap, info: int, box: Box) -> Handle:
            begun.append(read_info(sandbox, info, box))
            raise EnvironmentFailure("bubblewrap did not start")

        monkeypatch.setattr(Bubblewrap, "read_info", too_late)
        with pytest.raises(EnvironmentFailure, match="did not start"):
            Environment.start(config, next(trace_ids))
        until(lambda: not begun[0].alive(), "process 1 of the box lives", seconds=5)

    @pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x02[]", b'\x00\x00\x00\x0c{"result":1}'])
    def test_a_process_that_sends_invalid_frames_is_killed(self, environment: Environment, data: bytes) -> None:
        body = (
            "import os, socket\n"
            "for fd in range(3, 40):\n"
            "    try:\n"
            "        peer = socket.socket(fileno=os.dup(fd))\n"
            "        if peer.getsockname() and not peer.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):\n"
            f"            peer.sendall({data!r})\n"
            "    except OSError:\n"
            "        pass\n"
        )
        with pytest.raises(EnvironmentFailure, match="was killed"):
            act(environment, body)
        assert not environment.handle.alive()

    def test_excess_output_is_cut(self, environment: Environment) -> None:
        executed = act(environment, "import os\nprint('a' * 10**6)\nos.system('yes | head -c 20000000')\nprint('b')")
        assert executed.error is None
        assert len(executed.output) <= 8_000
        assert executed.output.startswith("aaa")
        assert act(environment, "import os\nos.system('echo sub')").output == "sub\n"
        act(environment, "import subprocess\nsubprocess.Popen(['yes'])")
        assert value(environment, "return 1") == 1

    def test_results_that_are_too_large_together(self, environment: Environment) -> None:
        source = (
            "def much(self): return ['\U0001f600' * 19_000] * 4\n"
            "def view(self): return '\U0001f600' * 20_000\n"
            "self.task.evaluations += [{'title': str(n), 'callback': much} for n in range(64)]\n"
            "self.observation_views += [{'title': str(n), 'callback': view} for n in range(64)]\n"
        )
        assert run(environment, source).error is None
        evaluations = environment.execute(next(step_ids), Execute(op="evaluate")).evaluations
        assert len(evaluations) == 64
        assert [len(str(evaluation.value)) > 70_000 for evaluation in evaluations] == [True] * 2 + [False] * 62
        error = environment.execute(next(step_ids), Execute(op="begin")).error
        assert error is not None
        assert "as a whole is too large" in error.message
        assert value(environment, "return 1") == 1

    def test_background_processes_of_a_callback_do_not_block_anything(self, environment: Environment) -> None:
        value(environment, "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\nreturn 1")
        value(environment, "import subprocess\nsubprocess.Popen(['sleep', '60'], start_new_session=True)\nreturn 1")
        assert value(environment, "return 2") == 2

    def test_a_forked_process_ends_with_its_callback(self, environment: Environment) -> None:
        source = (
            "import os\n"
            "def fork(self):\n    os.fork()\n    return 1\n"
            "def write(self):\n    with open('ran', 'a') as file: file.write('x')\n"
            "self.add_evaluation('Fork?', fork)\nself.add_evaluation('Write?', write)\n"
        )
        assert run(environment, source).error is None
        executed = environment.execute(next(step_ids), Execute(op="evaluate"))
        assert [evaluation.value for evaluation in executed.evaluations] == [1, None]
        assert value(environment, "return open('ran').read()") == "x"


class TestBoxes:
    def test_traces_can_not_see_each_other(self, start: Start, config: Config) -> None:
        first, second = start(TICTACTOE), start(TICTACTOE)
        value(first, "open('/app/mine', 'w').write('x')\nopen('/tmp/mine', 'w').write('x')")
        value(first, "return move(get_state()['free'][0])")
        assert len(value(first, "return get_state()")["free"]) < len(value(second, "return get_state()")["free"])
        assert value(second, "import os\nreturn [os.path.exists(p) for p in ('/app/mine', '/tmp/mine')]") == [
            False,
            False,
        ]
        home = config.home
        for path in (home, config.workspaces, first.workspace, first.socket_path, "/root/.bashrc", "/etc/shadow"):
            assert value(second, f"import os\nreturn os.path.exists({str(path)!r})") is False
        assert value(second, "import pwd\nreturn [user.pw_name for user in pwd.getpwall()]") == ["weaver"]
        value(first, "import subprocess\nreturn subprocess.Popen(['sleep', '60']).pid")
        names = "import glob\nreturn sorted(open(p).read().strip() for p in glob.glob('/proc/[0-9]*/comm'))"
        assert "sleep" in value(first, names)
        assert "sleep" not in value(second, names)
        assert len(value(second, names)) == 2

    def test_parameters_are_not_in_the_command_line(self, start: Start) -> None:
        environment = start(None, params={"key": "sesame"})
        source = (
            "def act(self):\n    read = [open(f'/proc/{name}/cmdline').read() for name in os.listdir('/proc')"
            " if name.isdecimal()]\n    assert len(read) > 1\n"
            "    return args.params['key'], 'ses' + 'ame' in str(read)\n"
            "self.add_action('Read', act)\n"
        )
        executed = environment.execute(next(step_ids), Execute(op="bootstrap", source=source))
        assert executed.value == ["sesame", False]

    def test_environment_variables_of_the_host_are_not_in_the_box(
        self, start: Start, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        seen = value(start(), "import os\nreturn sorted(os.environ)")
        assert seen == ["HOME", "LANG", "PATH", "PWD", "PYTHONHASHSEED", "TERM"]
        code = "import subprocess\nreturn subprocess.run(['sh', '-c', 'cat /proc/*/environ'], capture_output=True)"
        assert "secret" not in str(value(start(), code + ".stdout.decode()"))

    def test_the_hosts_network_is_reachable_only_if_requested(self, start: Start) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            connect = f"import socket\nsocket.create_connection(('localhost', {server.getsockname()[1]}), 5)"
            assert act(start(network="host"), connect).error is None
            refused = act(start(), connect).error
            assert refused is not None
            assert refused.type == "ConnectionRefusedError"
        shown = "import os\nreturn os.path.exists('/etc/resolv.conf')"
        assert value(start(network="host"), shown) is os.path.exists("/etc/resolv.conf")
        assert value(start(), shown) is False

    def test_libtmux_can_be_imported_because_old_bootstraps_import_it(self, environment: Environment) -> None:
        assert run(environment, "import libtmux").error is None

    def test_other_programs_work_inside(self, environment: Environment) -> None:
        body = (
            "import subprocess\n"
            "subprocess.run(['tmux', 'new-session', '-d', '-s', 'x', 'cat'], check=True)\n"
            "return subprocess.run(['tmux', 'ls'], capture_output=True, text=True).stdout"
        )
        assert value(environment, body).startswith("x: 1 windows")

    def test_an_unknown_sandbox_is_refused(self, config: Config) -> None:
        with pytest.raises(UsageError, match="bubblewrap, none"):
            Environment.start(replace(config, sandbox="docker"), 1)

    def test_without_isolation(self, config: Config) -> None:
        environment = Environment.start(replace(config, sandbox="none"), next(trace_ids))
        step = Execute(op="bootstrap", source=EMPTY)
        assert environment.execute(next(step_ids), step).working_directory == str(environment.workspace)
        assert value(environment, "import bootstraps.tictactoe_server as s\nreturn s.winner(list('XXX      '))") == "X"
        environment.stop(keep_workspace=False)
        assert not environment.handle.alive()
        assert not environment.workspace.exists()

    def test_a_deep_home_works(self, config: Config) -> None:
        deep = replace(config, home=config.home / ("deep" * 20) / ("er" * 20))
        environment = Environment.start(deep, 1)
        assert environment.handle.alive()
        environment.stop()
        shutil.rmtree(deep.runtime)


class TestTicTacToe:
    SMART = (
        "game = get_state()\n"
        "if game['over']:\n"
        "    self.return_to_caller({'result': game['results'][0]})\n"
        "    return 'returned'\n"
        "from bootstraps.tictactoe_server import play_minimax\n"
        "return move(play_minimax(game['board'], game['you'], random))['result']\n"
    )

    @pytest.mark.parametrize("first", [True, False])
    @pytest.mark.parametrize("opponent", ["random", "basic", "minimax"])
    def test_a_whole_game(self, start: Start, opponent: str, first: bool) -> None:
        environment = start(TICTACTOE, params={"opponent": opponent, "first": first}, seed=3)
        evaluations = environment.execute(next(step_ids), Execute(op="evaluate")).evaluations
        assert [evaluation.value for evaluation in evaluations] == [False, False, True]
        for _ in range(6):
            board = environment.execute(next(step_ids), Execute(op="begin")).views[0]
            assert board.title == "Board"
            assert opponent in board.text
            executed = act(environment, self.SMART)
            assert executed.error is None
            if executed.value == "returned":
                break
        main = executed.subagents[0]
        assert main.completed
        assert main.returned["result"] in (["drawn"] if opponent == "minimax" else ["won", "drawn"])
        assert main.returned["is_over"] is True

    def test_the_result_comes_from_the_server(self, start: Start) -> None:
        environment = start(TICTACTOE)
        error = act(environment, "self.return_to_caller({'result': 'victory'})").error
        assert error is not None
        assert "won" in error.message
        error = act(environment, "move(4)").error
        assert error is not None
        assert "can't be taken" in error.message
        assert value(environment, "return request('/reset', {})")["results"] == ["lost"]


class TestFilesOfWeaveAgent:
    """What files written for weave-agent may use besides the API that the model reads."""

    def test_the_model_continues_texts(self, environment: Environment) -> None:
        asked: list[CompleteRequest] = []

        def complete(request: CompleteRequest) -> list[str]:
            asked.append(request)
            return ["a", "b"]

        source = (
            "async def action_ask(self):\n"
            "    asked = dict(text='Once', n_tokens=7, port=5001, n=2, stop='end')\n"
            "    return await generate_outputs_vllm(self.model_name, **asked)\n"
            "self.add_action('Ask', action_ask)\n"
        )
        step = Execute(op="run", type=BlockType.ACTION, source=source)
        executed = environment.execute(next(step_ids), step, complete=complete)
        assert executed.value == ["a", "b"], executed.error
        [request] = asked
        assert (request.prompt, request.max_tokens, request.n, request.stop) == ("Once", 7, 2, ["end"])
        step = Execute(op="run", type=BlockType.ACTION, source=source.replace("'end'", "None"))
        environment.execute(next(step_ids), step, complete=complete)
        assert asked[1].stop == []

    @pytest.mark.parametrize(
        ("call", "says"),
        [
            ("n=0", "n is 0: give 1 to 64"),
            ("n=65", "n is 65: give 1 to 64"),
            ("n_tokens=16384", "n_tokens is 16384: give 1 to 8,192"),
            ("n_tokens=0", "n_tokens is 0: give 1 to 8,192"),
            ("temperature=-1", "temperature is -1: give 0 to 100"),
            ("temperature=float('nan')", "temperature is nan: give 0 to 100"),
            ("text='x' * (2**20 + 1)", "len(text) is 1048577: give 0 to 1,048,576"),
            ("stop=['x'] * 17", "the number of stop strings is 17: give 0 to 16"),
            ("stop=''", "the length of a stop string is 0: give 1 to 1,000"),
            ("stop=['x', 'x' * 1001]", "the length of a stop string is 1001: give 1 to 1,000"),
        ],
    )
    def test_arguments_beyond_the_bounds_are_refused_in_the_process(
        self, environment: Environment, call: str, says: str
    ) -> None:
        before = value(environment, "return os.getpid()")
        body = f"return generate_outputs_vllm('', **{{'text': 'Once', 'n_tokens': 7, **dict({call})}})"
        error = act(environment, body).error
        assert error is not None
        assert (error.type, error.message) == ("ValueError", says)
        assert value(environment, "return os.getpid()") == before

    def test_the_model_continues_the_whole_of_a_long_text(self, environment: Environment) -> None:
        [asked] = texts_asked(environment, "generate_outputs_vllm('', 'word ' * 40_000 + '\\x00\\udc00', 7)")
        assert asked.prompt == "word " * 40_000 + "\\x00\\udc00"

    def test_requests_for_texts_are_numbered_in_their_step(self, environment: Environment) -> None:
        asked = texts_asked(environment, "for _ in range(2):\n    generate_outputs_vllm('', 'Once', 7)", times=2)
        assert [request.turn for request in asked] == [1, 2, 1, 2]

    def test_a_request_of_the_wrong_form_ends_the_process(self, environment: Environment) -> None:
        forged = "{'prompt': '', 'n': 65, 'max_tokens': 1, 'stop': [], 'temperature': 1.0}"
        with pytest.raises(EnvironmentFailure, match="invalid message"):
            act(environment, f"import weave\nweave.request('complete', {forged})")

    @pytest.mark.parametrize(
        ("call", "wrong"),
        [
            ("''", "task"),
            ("['Who?', ' ']", "task"),
            ("'x' * 100_001", "task"),
            ("'Who?', 'x' * 100_001", "context"),
            ("'Who?', {'a': 1}", "context"),
            ("'Who?', None", "context"),
        ],
    )
    def test_a_task_that_no_agent_would_take_is_refused_in_the_process(
        self, environment: Environment, call: str, wrong: str
    ) -> None:
        before = value(environment, "return os.getpid()")
        error = act(environment, f"agent.research({call})").error
        assert error is not None
        message = f"The {wrong} must be text, and have 100,000 characters at most."
        assert (error.type, error.message) == ("ValueError", message)
        assert value(environment, "return os.getpid()") == before

    def test_a_task_for_another_agent_may_hold_any_characters(self, environment: Environment) -> None:
        [asked] = act(environment, "agent.research('Who\\x00?', '\\udc00' + 'x' * 50_000)").delegates
        assert (asked.label, asked.task) == ("Who\\x00?", {"task": "Who\\x00?", "context": "\\udc00" + "x" * 50_000})

    def test_callbacks_add_blocks(self, environment: Environment) -> None:
        body = "self.add_error_block('one')\ntwo = {'type': 'error', 'message': 'two'}\n"
        body += "assert agent.add_block(two) is two\nreturn 3"
        executed = act(environment, body)
        assert executed.value == 3
        assert [(block.type, block.text) for block in executed.added] == [("error", "one"), ("error", "two")]
        assert act(environment, "pass").added == ()
        refused = act(environment, "self.add_block({'type': 'observation', 'title': 'T', 'observation': 'x'})").error
        assert refused is not None
        assert refused.message == "this callback can add a block of type error, not 'observation'"
        assert act(environment, "for i in range(65):\n    self.add_error_block(i)").error is not None

    def test_an_action_has_a_block_written(self, environment: Environment) -> None:
        source = (
            "async def action_plan(self):\n"
            "    block = await self.generate_block('debug', self.context, ['Is it?'], hint='Be short.')\n"
            "    return block['body']\n"
            "self.add_action('Plan', action_plan)\n"
        )
        step = Execute(op="run", type=BlockType.ACTION, source=source)
        asks = environment.execute(next(step_ids), step)
        assert asks.writes == Writes(type="debug", hint="Be short.", questions=("Is it?",))
        told = Execute(op="resume", source='{"type": "debug", "body": "Why?"}')
        assert environment.execute(next(step_ids), told).value == "Why?"
        assert "types orientation" in act(environment, "self.generate_block('action')").error.message  # type: ignore

    def test_coroutines_run_while_a_coroutine_waits_for_a_subagent(self, environment: Environment) -> None:
        source = (
            "async def action_call(self):\n"
            "    helper = agent.subagent('helper', self.name, 'Help', {'n': 'integer'}, 5)\n"
            "    async def look(subagent):\n        return 'seen'\n"
            "    helper.add_observation_view('Look', look)\n"
            "    return await agent.run('helper')\n"
            "self.add_action('Call', action_call)\n"
        )
        step = Execute(op="run", type=BlockType.ACTION, source=source)
        assert environment.execute(next(step_ids), step).waits_for == "helper"
        begun = environment.execute(next(step_ids), Execute(op="begin", subagent="helper"))
        assert [view.text for view in begun.views] == ["seen"]
        done = "def action_done(self):\n    self.return_to_caller({'n': 3})\nself.add_action('Done', action_done)\n"
        step = Execute(op="run", type=BlockType.ACTION, source=done, subagent="helper")
        assert environment.execute(next(step_ids), step).error is None
        resumed = environment.execute(next(step_ids), Execute(op="resume"))
        assert resumed.value == {"name": "helper", "children": [], "schema": {"n": "integer"}, "n": 3}

    @pytest.mark.parametrize(
        ("schema", "value", "wrong"),
        [
            ({"moves": {"type": "array", "items": {"type": "integer"}}}, {"moves": [1, 2]}, None),
            ({"moves": {"type": "array", "items": {"type": "integer"}}}, {"moves": ["a"]}, "'moves[0]': 'a' is not"),
            ({"moves": {"type": "list", "items": "integer"}}, {"moves": ["a"]}, "'moves[0]': 'a' is not"),
            ({"a": {"type": "object", "properties": {"b": "float"}}}, {"a": {"b": True}}, "'a.b': True is not"),
            ({"a": {"type": "integer", "minimum": 3}}, {"a": 2}, "'a': 2 is less than"),
            ({"a": {"type": "no such type", "minimum": 1}}, {"a": "x"}, None),
            ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": "x"}, "'a' is 'x'"),
            ({"type": "object", "properties": {"a": {"type": "integer"}}, "required": []}, {}, None),
            ({"type": "object", "properties": {"a": {"type": "integer"}}}, {}, "'a' is missing"),
            ({"type": "object", "properties": {"a": "integer"}, "required": []}, {"a": "x"}, "'a' is 'x'"),
            ({"type": "object", "properties": {}, "required": ["a"]}, {}, "'a' is missing"),
            ({"type": "string", "properties": "integer"}, {"type": "x", "properties": 2}, None),
            ({"a": ["integer", "null"]}, {"a": None}, None),
            ({"a": ["integer", "null"]}, {"a": "x"}, "'a' is 'x'"),
            ({"a": {"type": ["integer", "no such type"]}}, {"a": "x"}, None),
        ],
    )
    def test_schemas_of_weave_agent_are_checked(
        self, config: Config, start: Start, schema: dict[str, Any], value: dict[str, Any], wrong: str | None
    ) -> None:
        folder = packages.install(config, packages.LOCK.read_text())
        source = (
            f"def action_go(self):\n    helper = agent.subagent('helper', None, '', {schema!r}, 5)\n"
            f"    helper.return_to_caller({value!r})\nself.add_action('Go', action_go)\n"
        )
        failure = (
            start(source=None, packages=folder).execute(next(step_ids), Execute(op="bootstrap", source=source)).error
        )
        assert (failure is None) == (wrong is None), failure
        assert wrong is None or (failure is not None and wrong in failure.message)

    def test_a_type_that_is_no_name_is_not_checked(self, environment: Environment) -> None:
        body = "helper = agent.subagent('helper', None, '', {'n': int, 'm': {'type': bool}, 'k': [{}]}, 5)\n"
        assert value(environment, body + "helper.return_to_caller({'n': 'x', 'm': 2, 'k': 3})\nreturn helper.completed")
        error = act(environment, body.replace("helper", "other") + "other.return_to_caller({'n': 1})").error
        assert error is not None
        assert error.message.startswith("'m' is missing")
