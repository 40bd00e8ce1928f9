"""Protected evaluations: no forgery is rewarded, honest work always is, and a missing evaluation is not a zero."""

import json
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.security.forgeries import FORGERIES
from tests.support.protected_task import HONEST, TASK
from tests.support.waiting import until
from weavegen import config as configuration
from weavegen.agents.reward import reward
from weavegen.config import Config
from weavegen.errors import EnvironmentFailure, UsageError
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import Evaluated, Execute, Executed
from weavegen.sandbox import grading, packages
from weavegen.sandbox.bubblewrap import Bubblewrap
from weavegen.sandbox.environment import Environment, remove
from weavegen.sandbox.grading import Grader, asked, copy_files, declared, protected
from weavegen.sandbox.providers import Box, Handle, Limits
from weavegen.sandbox.stopping import members, resume, stopped
from weavegen.trace.blocks import BlockType

LIMITS = Limits(seconds=10.0, grace=3.0)


@dataclass(frozen=True)
class Task:
    """What a trace is enqueued with."""

    source: str = TASK
    seed: int = 7
    params: dict[str, Any] | None = None
    before: Executed | None = None
    packages: Path | None = None


GRADING = Task(params={"numbers": 4})


@pytest.fixture(scope="module")
def config() -> Iterator[Config]:
    with tempfile.TemporaryDirectory(prefix="weavegen-test-") as home:
        Path(home).chmod(0o711)
        yield configuration.load({"WEAVEGEN_HOME": home})


@contextmanager
def started(config: Config, task: Task = GRADING) -> Iterator[Environment]:
    """The environment of a trace that has begun a task."""
    environment = Environment.start(
        config, 1, seed=task.seed, params=task.params, packages=task.packages, limits=LIMITS
    )
    try:
        assert environment.execute(1, Execute(op="bootstrap", source=task.source)).error is None
        yield environment
    finally:
        remove(config, 1)


def act(environment: Environment, body: str, step: int = 2) -> Executed:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    source = f"def action_test(self):\n{lines}\nself.add_action('Test', action_test)\n"
    return environment.execute(step, Execute(op="run", type=BlockType.ACTION, source=source))


def evaluate(config: Config, environment: Environment, task: Task = GRADING, step: int = 3) -> Executed:
    executed = environment.execute(step, Execute(op="evaluate", source=asked(declared(task.source))))
    known = (task.source, task.seed, task.params)
    grader = Grader(config, 1, LIMITS, *known, before=task.before, packages=task.packages)
    return grader.grade(environment.handle, executed)


def results(executed: Executed) -> dict[str, Any]:
    """By title: the verdict, or the cause where there is none."""
    return {one.title: one.cause or one.value for one in executed.evaluations if one.protected}


def earned(executed: Executed) -> float | None:
    return reward([], executed.evaluations, Settings()).reward


# -------------------------------------------------------------------------------------------- forgeries


def test_there_are_enough_forgeries() -> None:
    assert len(FORGERIES) > 60


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_not_rewarded(config: Config, name: str) -> None:
    with started(config) as environment:
        try:
            act(environment, FORGERIES[name])
            executed = evaluate(config, environment)
        except EnvironmentFailure:  # the worker rejected its answer, or it has ended: there is no evaluation at all
            return
        found = results(executed)
        assert set(found) == {"Is the file right?", "Is the claim right?"}
        assert set(found.values()) <= {False, "agent"}, executed.evaluations
        assert not earned(executed)
        for main in executed.subagents:
            if main.name == "main" and isinstance(main.returned, dict):
                assert not main.returned["file_is_right"]
                assert not main.returned["claim_is_right"]


@pytest.mark.parametrize("name", [name for name in FORGERIES if not name.startswith(("file:", "claim:"))])
def test_honest_work_is_rewarded_whatever_else_the_process_does(config: Config, name: str) -> None:
    """Tampering with the process itself may lose the reward, but never turns a right file into a wrong one."""
    with started(config) as environment:
        act(environment, HONEST)
        try:
            act(environment, FORGERIES[name], 3)
            executed = evaluate(config, environment, step=4)
        except EnvironmentFailure:
            return
        if name not in ("go on though stopped", "fill the disk"):  # these destroy their own answer
            assert results(executed)["Is the file right?"] is True, executed.evaluations


def test_honest_work_is_rewarded(config: Config) -> None:
    with started(config) as environment:
        assert results(evaluate(config, environment)) == {"Is the file right?": False, "Is the claim right?": False}
        for step in range(4, 10, 2):
            assert act(environment, HONEST, step).error is None
            executed = evaluate(config, environment, step=step + 1)
            assert results(executed) == {"Is the file right?": True, "Is the claim right?": True}
            assert earned(executed) == 0.5


def test_a_verdict_of_an_earlier_step_is_not_repeated(config: Config) -> None:
    with started(config) as environment:
        act(environment, HONEST)
        before = evaluate(config, environment)
        act(environment, "global answer\nanswer = 0\nopen('out.txt', 'w').write('0')", 4)
        executed = evaluate(config, environment, replace(GRADING, before=before), step=5)
        assert set(results(executed).values()) == {False}
        # The live process answers a step that is delivered again from memory. The verdict is that of the step.
        again = evaluate(config, environment, replace(GRADING, before=before), step=5)
        assert again.evaluations == executed.evaluations


def test_another_seed_has_another_truth(config: Config) -> None:
    with started(config) as environment:
        act(environment, HONEST)
        assert set(results(evaluate(config, environment, replace(GRADING, seed=8))).values()) == {False}


def test_without_isolation_nothing_counts_as_protected(config: Config) -> None:
    assert protected(config, TASK) == declared(TASK) != ()
    assert protected(replace(config, sandbox="none"), TASK) == ()


# -------------------------------------------------------------------------------------------- graders


def task(check: str, more: str = "", options: str = 'files=["out.txt"]') -> Task:
    """A task whose protected evaluation has this body. `more`: at the top level of the file."""
    lines = "".join(f"    {line}\n" for line in check.splitlines())
    source = (
        "import math, os, signal, subprocess, sys, time\nanswer = 1\n"
        f"{more}\ndef check(self):\n{lines}\n"
        "def action_begin(self):\n"
        f"    self.task.add_evaluation('Is it so?', check, protected=True, {options})\n"
        "    open('out.txt', 'w').write('return 0')\n"
        "self.add_action('Begin', action_begin)\n"
    )
    return Task(source, seed=3)


def judge(config: Config, grading: Task) -> Evaluated:
    with started(config, grading) as environment:
        [one] = evaluate(config, environment, grading).evaluations
    return one


BAD_GRADERS = {
    "an exception": ("return 1 / 0", "ZeroDivisionError"),
    "a number": ("return 1", "TypeError"),
    "nan": ("return math.nan", "TypeError"),
    "infinity": ("return math.inf", "TypeError"),
    "a text": ("return 'True'", "TypeError"),
    "nothing": ("pass", "TypeError"),
    "a value equal to True": ("class Yes(int): pass\nreturn Yes(1)", "TypeError"),
    "an exit": ("sys.exit(0)", "SystemExit"),
    "an end of the process": ("os._exit(0)", "NotEvaluated"),
    "a signal": ("os.kill(os.getpid(), signal.SIGSEGV)", "NotEvaluated"),
    "a file that is not named": ("return open('/app/other.txt').read()", "FileNotFoundError"),
    "a question to the model": ("return simple_evaluate_outputs(lambda text: text, ['x'])[0] > 0", "RuntimeError"),
    "too much memory": ("return bool('x' * 2**31)", "MemoryError"),
}


@pytest.mark.parametrize("name", BAD_GRADERS)
def test_a_grader_that_gives_no_verdict_is_the_fault_of_the_task(config: Config, name: str) -> None:
    check, kind = BAD_GRADERS[name]
    one = judge(config, task(check))
    assert (one.cause, one.value, one.error and one.error.type) == ("task", None, kind)
    result = reward([], [one], Settings())
    assert (result.reward, result.protected, result.not_evaluated) == (None, True, 1)


@pytest.mark.parametrize("most", [0.5, 2.0])
def test_a_grader_may_return_a_truth_of_numpy(config: Config, most: float) -> None:
    folder = packages.install(config, packages.LOCK.read_text())
    grading = replace(task(f"import numpy\nreturn numpy.mean([0.5, 1.5]) < {most}"), packages=folder)
    assert judge(config, grading).value is (most == 2.0)


def test_a_grader_that_does_not_end_is_the_fault_of_the_task(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.security.test_rewards.LIMITS", Limits(seconds=1.0, grace=1.0, start=10.0))
    assert judge(config, task("while True: pass")).cause == "task"
    stubborn = "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))\nwhile True: pass"
    assert judge(config, task(stubborn)).cause == "task"


def test_a_grader_runs_no_module_of_the_workspace_and_can_import_those_of_the_project(config: Config) -> None:
    check = "return os.getcwd() == '/app' and not {'/app', '', '.'} & set(sys.path)"
    assert judge(config, task(check, "import bootstraps.params, tools")).value is True


def test_a_grader_reaches_no_network_and_can_write_no_answer(config: Config) -> None:
    check = (
        "import socket\nfor act in (\n"
        "    lambda: socket.create_connection(('1.1.1.1', 53), 1), lambda: open('out.txt', 'a')):\n"
        "    try: act()\n    except OSError: continue\n    return False\nreturn open('out.txt').read() == 'return 0'"
    )
    assert judge(config, task(check)).value is True


PROGRAM = """
import ctypes, os, signal
parent = os.getppid()
for pid in (1, 2, parent):
    try: os.kill(pid, signal.SIGKILL) if pid == 1 else None
    except OSError: pass
    for number in range(64):
        try:
            with open(f"/proc/{pid}/fd/{number}", "wb", 0) as file:
                file.write(b'{"number": 0, "value": true}\\n')
        except OSError: pass
    try: open(f"/proc/{pid}/mem", "r+b").close()
    except OSError: continue
    print("memory")
print("done")
"""


def test_a_program_that_a_grader_starts_does_not_reach_the_grader(config: Config) -> None:
    check = (
        f"done = subprocess.run([sys.executable, '-c', {PROGRAM!r}], capture_output=True, text=True)\n"
        "assert done.stdout == 'done\\n', done\nreturn False"
    )
    one = judge(config, task(check))
    assert (one.value, one.error) == (False, None)


def test_a_grader_can_run_code_of_the_agent_where_it_can_only_compute(config: Config) -> None:
    """As docs/writing-bootstraps.md says: `evaluate_programs` runs it in a process that has nothing but a socket."""
    more = "from weavegen.box.trial import evaluate_programs"
    check = (
        "tests = 'def evaluate(function): return float(function(20) == 400)'\n"
        "request = {'name': 'square', 'programs': PROGRAMS, 'tests': '', 'evaluator': tests, 'seconds': 2}\n"
        "return [one['score'] for one in evaluate_programs(json.dumps(request), 20)] == WANTED"
    )
    programs = {
        "def square(n): return n * n": 1.0,
        "def square(n): return n": 0.0,
        "import os\ndef square(n): os._exit(0)": None,
        "import gc, sys\ndef square(n):\n    for f in gc.get_objects():\n        if callable(f): f = lambda *_: 1.0\n"
        "    sys.stdout.write('{\"score\": 1.0}')\n    return 1": 0.0,
        "class Yes(int):\n    def __eq__(self, other): return True\ndef square(n): return Yes(1)": 0.0,
    }
    more += f"\nPROGRAMS = {list(programs)!r}\nWANTED = {list(programs.values())!r}"
    assert judge(config, task(check, more)).value is True


def test_a_lost_box_is_tried_again_and_then_the_fault_of_the_infrastructure(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill the grader's boxes from outside, as the kernel does when the machine is out of memory."""
    left = 2
    boxes: list[Handle] = []
    read, start = grading.read_verdicts, Bubblewrap.start

    def remember(self: Bubblewrap, box: Box) -> Handle:
        boxes.append(start(self, box))
        return boxes[-1]

    def kill_first(pipe: int, seconds: float) -> grading.Verdicts:
        nonlocal left
        left -= 1
        if left >= 0:
            boxes[-1].kill()
        return read(pipe, seconds)

    monkeypatch.setattr(Bubblewrap, "start", remember)
    monkeypatch.setattr(grading, "read_verdicts", kill_first)
    slow = task("time.sleep(1)\nreturn True")
    assert judge(config, slow).value is True
    assert left < 0
    left = 100
    one = judge(config, slow)
    assert one.cause == "infrastructure"
    assert "ended early" in str(one.error)


def test_a_host_without_room_is_the_fault_of_the_infrastructure(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> dict[str, str]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(grading, "copy_files", full)
    assert judge(config, task("return True")).cause == "infrastructure"


# -------------------------------------------------------------------------------------------- files and processes


def test_a_file_that_changes_all_the_time_is_copied_as_it_was_or_not_at_all(tmp_path: Path) -> None:
    """The races that stopping the agent's processes does not prevent: what a name means, and what a file holds."""
    workspace, copies, secret = tmp_path / "app", tmp_path / "copies", tmp_path / "secret"
    workspace.mkdir()
    secret.write_text("secret")
    over = threading.Event()
    (workspace / "folder").mkdir()

    def swap() -> None:
        number = 0
        while not over.is_set():
            number += 1
            new = workspace / "new"
            match number % 5:
                case 0:
                    new.symlink_to(secret)
                case 1:
                    os.mkfifo(new)
                case 2:
                    new.mkdir()
                case 3:
                    new.write_bytes(b"x" * (grading.MAX_BYTES + 1) if number % 25 == 3 else b"mine")
                case 4:
                    new.write_text("mine")
            if new.is_dir():
                (workspace / "out.txt").unlink(missing_ok=True)
            elif (workspace / "out.txt").is_dir():
                (workspace / "out.txt").rmdir()
            new.rename(workspace / "out.txt")

    thread = threading.Thread(target=swap)
    thread.start()
    root = os.open(workspace, os.O_PATH)
    try:
        seen = set()
        end = time.monotonic() + 3
        while time.monotonic() < end:
            copies.mkdir(exist_ok=True)
            problems = copy_files(root, ["out.txt"], copies)
            if not problems:
                assert (copies / "out.txt").read_text() == "mine"
                (copies / "out.txt").unlink()
            seen.add(bool(problems))
        assert seen == {True, False}
    finally:
        over.set()
        thread.join()
        os.close(root)


@pytest.mark.parametrize("kind", ["link", "folder", "fifo", "socket", "device", "huge", "sparse", "missing"])
def test_what_is_not_copied(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "app" / "a" / "out.txt"
    place.parent.mkdir(parents=True)
    match kind:
        case "link":
            place.symlink_to("/etc/passwd")
        case "folder":
            place.parent.rmdir()
            place.parent.symlink_to("/etc")
            place = place.parent / "passwd"
        case "fifo":
            os.mkfifo(place)
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(place))
        case "device":
            if os.getuid():
                pytest.skip("only root can make a device")
            os.mknod(place, 0o20666, os.makedev(1, 5))
        case "huge":
            place.write_bytes(bytes(grading.MAX_BYTES + 1))
        case "sparse":
            place.touch()
            os.truncate(place, 2**40)
    copies = tmp_path / "copies"
    copies.mkdir()
    root = os.open(tmp_path / "app", os.O_PATH)
    began = time.monotonic()
    assert list(copy_files(root, [f"a/{place.name}"], copies)) == [f"a/{place.name}"]
    assert time.monotonic() - began < 1
    assert not list(copies.rglob("*.txt"))
    os.close(root)


def test_all_files_together_have_a_limit(tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir()
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(bytes(grading.MAX_BYTES * 2 // 3))
    root = os.open(tmp_path, os.O_PATH)
    assert list(copy_files(root, ["a", "b"], tmp_path / "copies")) == ["b"]
    os.close(root)


def pids(environment: Environment) -> list[int]:
    return [process.pid for process in members(environment.handle)]


def state(pid: int) -> str:
    """The state of a process, as proc_pid_stat(5) has it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def counting(environment: Environment) -> Callable[[], int]:
    """Have processes and threads of the box count. Gives a function that reads how far they are."""
    body = (
        "import os, threading, time\ndef count(name):\n    number = 0\n    while True:\n        number += 1\n"
        "        open(name, 'w').write(str(number))\n        time.sleep(0.001)\n"
        "threading.Thread(target=count, args=('thread',), daemon=True).start()\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    count('fork')"
    )
    assert act(environment, body).error is None
    folder = Path(f"/proc/{environment.handle.pid}/root/app")
    until(lambda: all((folder / name).exists() for name in ("thread", "fork")))
    return lambda: sum(int((folder / name).read_text() or 0) for name in ("thread", "fork"))


def test_all_processes_stand_still_meanwhile_and_go_on_after_that(config: Config) -> None:
    with started(config) as environment:
        count = counting(environment)
        with stopped(environment.handle) as still:
            assert still
            assert {state(pid) for pid in pids(environment)} <= {"T", "Z"}
            first = count()
            time.sleep(0.2)
            assert count() == first
        deadline = time.monotonic() + 5
        while count() <= first:
            assert time.monotonic() < deadline
        assert act(environment, "return 1", 3).value == 1


def test_a_worker_that_was_killed_leaves_no_process_stopped(config: Config) -> None:
    with started(config) as environment:
        for pid in pids(environment):
            os.kill(pid, signal.SIGSTOP)
        resume(members(environment.handle))
        assert act(environment, "return 1").value == 1


def test_a_process_that_the_agent_has_stopped_stays_stopped(config: Config) -> None:
    with started(config) as environment:
        body = "import os, signal\npid = os.fork()\nif pid == 0: signal.pause()\nos.kill(pid, signal.SIGSTOP)"
        assert act(environment, body).error is None
        [last] = until(lambda: [pid for pid in pids(environment) if state(pid) == "T"])
        with stopped(environment.handle):
            pass
        assert state(last) == "T"


def test_no_process_belongs_to_a_box_that_has_ended(config: Config) -> None:
    with started(config) as environment:
        assert members(Handle(environment.handle.pid, environment.handle.created + 1)) == set()
        assert os.getpid() not in pids(environment)


# -------------------------------------------------------------------------------------------- declarations

WRONG = {
    "on the tick": "self.add_evaluation('A?', check, protected=True)",
    "a title that is computed": "main.task.add_evaluation('A' + '?', check, protected=True)",
    "a function that is computed": "main.task.add_evaluation('A?', lambda self: True, protected=True)",
    "an unknown function": "main.task.add_evaluation('A?', other, protected=True)",
    "options that are computed": "main.task.add_evaluation('A?', check, protected=True, files=FILES)",
    "not protected": "main.task.add_evaluation('A?', check, protected=False)",
    "files of an open evaluation": "main.task.add_evaluation('A?', check, files=['a'])",
    "another option": "main.task.add_evaluation('A?', check, protected=True, state=['a'])",
    "an absolute path": "main.task.add_evaluation('A?', check, protected=True, files=['/app/a'])",
    "a path that leads out": "main.task.add_evaluation('A?', check, protected=True, files=['a/../../b'])",
    "the project's folder": "main.task.add_evaluation('A?', check, protected=True, files=['tools/a.py'])",
    "a file in a file": "main.task.add_evaluation('A?', check, protected=True, files=['a', 'a/b'])",
    "no name": "main.task.add_evaluation('A?', check, protected=True, claims=['a.b'])",
    "a number": "main.task.add_evaluation('A?', check, protected=True, files=[1])",
    "two of one title": "main.task.add_evaluation('A?', check, protected=True)\n" * 2,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_declaration_that_is_not_written_out_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="protected evaluation"):
        declared(f"def check(self):\n    return True\n{WRONG[name]}\n")


def test_declarations_are_read_from_the_text() -> None:
    [file, claim] = declared(TASK)
    assert (file.title, file.callback, file.files) == ("Is the file right?", "file_is_right", ("out.txt",))
    assert claim.claims == ("answer",)
    assert json.loads(asked(declared(TASK))) == {"titles": [file.title, claim.title], "claims": ["answer"]}
    assert declared("# protected\ndef f(:") == ()
    assert asked(declared("x = 1")) == ""


def test_only_protected_evaluations_count_and_only_those_that_were_evaluated() -> None:
    def one(value: bool | None, *, protected: bool = True, cause: Any = None) -> Evaluated:
        return Evaluated(title="Is it so?", scope="task", value=value, protected=protected, cause=cause)

    def rewarded(*evaluations: Evaluated) -> tuple[float | None, bool, int]:
        result = reward([], evaluations, Settings())
        return result.reward, result.protected, result.not_evaluated

    assert rewarded(one(True), one(False, protected=False)) == (0.5, True, 0)
    assert rewarded(one(False), *[one(True, protected=False)] * 9) == (0.0, True, 0)
    assert rewarded(one(True), one(None, cause="infrastructure")) == (0.5, True, 1)
    assert rewarded(one(None, cause="agent"), one(True, protected=False)) == (None, True, 1)
    assert rewarded(one(True, protected=False), one(False, protected=False)) == (0.25, False, 0)
    assert rewarded() == (0.0, False, 0)
