"""FunSearch with real PostgreSQL, real boxes and the simulation's policy; hostile programs in trials."""

import itertools
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from simulation.policies.dialogue import Conversation
from simulation.policies.funsearch import write
from tests.support.worker import Worker
from weavegen import config as configuration
from weavegen import sql
from weavegen.cli.evolution import evolution
from weavegen.config import Config
from weavegen.database import Database, Statement
from weavegen.errors import UsageError
from weavegen.kernel.replay import Entry
from weavegen.kernel.steps import Candidate, Execute, Executed, ProgramEvaluated, Sample, Step
from weavegen.sandbox.environment import Environment
from weavegen.sandbox.providers import Limits
from weavegen.store import jobs, programs
from weavegen.store.jobs import Order

TASKS = Path("bootstraps/tasks")
step_ids = itertools.count(1)
trace_ids = itertools.count(1)


@pytest.fixture(scope="module")
def box() -> Iterator[Environment]:
    """An environment that only runs trials."""
    with tempfile.TemporaryDirectory(prefix="weavegen-test-") as home:
        Path(home).chmod(0o711)
        environment = Environment.start(configuration.load({"WEAVEGEN_HOME": home}), next(trace_ids))
        yield environment
        environment.stop(keep_workspace=False)


class Simulation:
    """Answers messages like the simulated model, and evaluates programs in the box."""

    def __init__(self, db: Database, box: Environment) -> None:
        self.db, self.box = db, box

    def answer(self, step: Step, journal: list[Entry]) -> Any:
        if isinstance(step, Execute):
            return self.box.execute(next(step_ids), step)
        assert isinstance(step, Sample)
        first, end = step.prompt.window
        with self.db.connect() as conn:
            query = Statement("select type, body from blocks where index >= :first and index < :end order by index")
            rows = conn.execute(query, {"first": first, "end": end}).all()
        conversation = Conversation([("assistant" if row.type == "assistant" else "user", row.body) for row in rows])
        texts = [write(conversation, step.seed, number) for number in range(step.n)]
        return [Candidate(text=text, finish_reason="stop", tokens=len(text) // 4) for text in texts]


def search(db: Database, box: Environment, task: dict[str, Any], seed: int = 1) -> int:
    """Run a search to its end. Returns its trace."""
    worker = Worker(db)
    worker.world = Simulation(db, box)  # type: ignore[assignment]
    with db.begin() as conn:
        jobs.enqueue(
            conn, [Order("task.json", json.dumps(task))], name="search", agent="funsearch", model=None, seed=seed,
            settings={}, version="0",
        )  # fmt: skip
    worker.run(worker.engine.start_queued())
    with db.connect() as conn:
        [trace] = conn.execute(Statement("select id from traces where status = 'ended'")).scalars()
    return int(trace)


def scores(db: Database, trace: int) -> list[float]:
    """The best score after each generation."""
    with db.connect() as conn:
        rows = sql.run(conn, "store/programs_of_trace", trace=trace).all()
    best: dict[int, float] = {}
    for row in rows:
        if row.score is not None:
            best[row.generation] = max(row.score, best.get(row.generation, row.score))
    return list(itertools.accumulate(best.values(), max))


@pytest.mark.parametrize(("name", "first", "wanted"), [("bin_packing", -7.33, -1.0), ("cap_set", 16.0, 18.0)])
def test_the_score_rises_and_the_best_is_never_lost(
    db: Database, box: Environment, name: str, first: float, wanted: float
) -> None:
    task = json.loads((TASKS / f"{name}.json").read_text()) | {"generations": 6, "islands": 2, "candidates": 6}
    trace = search(db, box, task)
    rising = scores(db, trace)
    assert round(rising[0], 2) == first
    assert rising[-1] >= wanted
    with db.connect() as conn:
        returned = conn.execute(Statement("select returned from traces")).scalar_one()
        rows = {row.number: row for row in sql.run(conn, "store/programs_of_trace", trace=trace)}
        states = conn.execute(Statement("select state from ticks where number > 0 order by number")).scalars()
        kept = conn.execute(
            Statement("select count(*) from programs p join candidates c on c.id = p.candidate_id")
        ).scalar_one()
    assert returned["score"] == max(row.score for row in rows.values() if row.score is not None)
    assert returned["source"] == rows[returned["program"]].source
    assert sorted(rows) == list(range(len(rows)))
    assert kept == len(rows) - 1
    # Every program is recorded with its ancestors, back to the first version.
    for row in rows.values():
        assert all(parent < row.number and rows[parent].score is not None for parent in row.parents)
        assert bool(row.parents) == (row.number > 0)
    # Each generation begins with the best program so far.
    for generation, state in enumerate(states):
        best = max(program[2] for island in state["islands"] for program in island)
        until = max(row.score for row in rows.values() if row.score is not None and row.generation <= generation)
        assert best == until
    assert any(row.error for row in rows.values())  # the policy makes errors


def test_the_command_shows_generations_ancestors_and_a_plot(
    db: Database, database: str, box: Environment, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setenv("DATABASE_URL", database)
    task = json.loads((TASKS / "cap_set.json").read_text()) | {"generations": 3, "islands": 1, "candidates": 4}
    trace, file = search(db, box, task), tmp_path / "evolution.svg"
    evolution(trace, svg=file, json=True)
    told = json.loads(capsys.readouterr().out)
    assert [one["generation"] for one in told["generations"]] == [0, 1, 2, 3]
    assert [one["programs"] for one in told["generations"]] == [1, 4, 4, 4]
    so_far = [one["best_so_far"] for one in told["generations"]]
    assert so_far == sorted(so_far)
    assert told["best"]["score"] == so_far[-1]
    assert [one["number"] for one in told["ancestors"]][-1:] == ([0] if told["best"]["number"] else [])
    assert ElementTree.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    evolution(trace, svg=None, json=False)
    shown = capsys.readouterr().out
    assert "def priority(vector):" in shown
    assert f"program {told['best']['number']}, score" in shown
    with pytest.raises(UsageError, match="there is no trace 999"):
        evolution(999, svg=None, json=False)
    with pytest.raises(UsageError, match="can't be written"):
        evolution(trace, svg=tmp_path / "no" / "such.svg", json=False)


def test_a_restarted_tick_leaves_no_program_behind(db: Database, box: Environment) -> None:
    task = json.loads((TASKS / "cap_set.json").read_text()) | {"generations": 1, "islands": 1, "candidates": 3}
    trace = search(db, box, task)
    with db.begin() as conn:
        programs.save(conn, trace, 1, ProgramEvaluated(number=1, generation=1, island=0, source="", error="no"), {})
        rows = sql.run(conn, "store/programs_of_trace", trace=trace).all()
    assert [(row.number, row.error is None) for row in rows] == [(0, True), (1, False)]


def test_a_search_with_only_a_name_writes_the_rest(db: Database, box: Environment) -> None:
    task = {
        "name": "count_words", "description": "Count how often each word stands in a text.", "generations": 1,
        "islands": 1, "candidates": 2, "skeleton": 'def count_words(text: str) -> dict[str, int]:\n'
        '    """Return how often each word stands in `text`."""\n    raise NotImplementedError\n',
    }  # fmt: skip
    search(db, box, task)
    with db.connect() as conn:
        returned = conn.execute(Statement("select returned from traces")).scalar_one()
    function: dict[str, Any] = {}
    exec(returned["source"], function)
    assert function["count_words"]("a b a") == {"a": 2, "b": 1}
    assert "def test(function)" in returned["tests"]
    assert "def evaluate(function)" in returned["evaluator"]


# ----------------------------------------------------------------------------------------- trials of programs

TESTS = "def test(function):\n    assert function(1) == 2\n"
EVALUATOR = "def evaluate(function):\n    return [float(function(number)) for number in range(3)]\n"
GOOD = "def f(x):\n    return x + 1\n"
HOSTILE = r"""
# === exit
import os
def f(x):
    os._exit(0)

# === exit after a good answer
import os
calls = []
def f(x):
    calls.append(x)
    if len(calls) > 2:
        os._exit(0)
    return x + 1

# === fork bomb
import os
def f(x):
    while True:
        os.fork()

# === threads
import threading
def f(x):
    while True:
        threading.Thread(target=f, args=(x,)).start()

# === endless
def f(x):
    while True:
        pass

# === endless at import
while True:
    pass

# === sleep
import time
def f(x):
    time.sleep(1000)

# === memory
def f(x):
    return len([0] * 10**10)

# === recursion
def f(x):
    return f(x)

# === deep answer
def f(x):
    value = []
    for _ in range(10**5):
        value = [value]
    return value

# === huge answer
def f(x):
    return 'x' * 10**8

# === kill the parent
import os, signal
def f(x):
    os.kill(os.getppid(), signal.SIGKILL)
    return x + 1

# === kill all
import os, signal
def f(x):
    os.kill(-1, signal.SIGKILL)
    return x + 1

# === read a file
def f(x):
    return len(open('/etc/passwd').read()) * 0 + x + 1

# === write a file
def f(x):
    open('/app/left', 'w').close()
    return x + 1

# === socket
import socket
def f(x):
    socket.socket()
    return x + 1

# === program
import subprocess
def f(x):
    subprocess.run(['ls'])
    return x + 1

# === memory of others
def f(x):
    open('/proc/1/mem', 'r+b')
    return x + 1

# === limits
import resource
def f(x):
    resource.setrlimit(resource.RLIMIT_NOFILE, (99, 99))
    return x + 1

# === nonsense in all pipes
import os
for at in range(200):
    try:
        os.write(at, b'\x04\0\0\0{}{}')
    except OSError:
        pass
def f(x):
    return x + 1

# === a verdict in all pipes
import json, os, struct
data = json.dumps({'error': None, 'value': [9e9]}).encode()
for at in range(200):
    try:
        os.write(at, struct.pack('<I', len(data)) + data)
    except OSError:
        pass
def f(x):
    return x + 1

# === a class that lies
class Two(int):
    def __eq__(self, other):
        return True
    def __float__(self):
        return 9e9
def f(x):
    return Two(7)

# === patched builtins
import builtins
builtins.float = lambda x: 9e9
builtins.range = lambda n: [9e9]
def f(x):
    return 7

# === a closed pipe
import os
os.closerange(0, 300)
def f(x):
    return x + 1
"""
"""Programs that must not get a score."""
HARMLESS = r"""
# === a printed score
def f(x):
    print('{"score": 9e9}')
    return x + 1

# === much output
def f(x):
    print('x' * 10**6)
    return x + 1

# === the evaluator in its memory
import gc
found = [one for one in gc.get_objects() if isinstance(one, dict) and 'evaluator' in one]
def f(x):
    return x + 1 + 10**9 * len(found)
"""
"""Programs that get their true score."""


def named(text: str) -> dict[str, str]:
    """The programs of a text, each after a line with its name."""
    _, *parts = re.split(r"^# === (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def evaluated(box: Environment, sources: list[str], seconds: float = 0.5, **request: str) -> list[dict[str, Any]]:
    """Results of the trials in the box."""
    whole = {"name": "f", "programs": sources, "tests": TESTS, "evaluator": EVALUATOR, "seconds": seconds, **request}
    executed: Executed = box.execute(
        next(step_ids), Execute(op="trial", source=json.dumps(whole)), limits=Limits(seconds=20.0)
    )
    assert executed.error is None, executed.error
    verdicts: list[dict[str, Any]] = executed.value
    return verdicts


@pytest.mark.parametrize("kind", [*named(HOSTILE), *named(HARMLESS)])
def test_a_hostile_program_harms_nothing_and_forges_no_score(box: Environment, kind: str) -> None:
    source = named(HOSTILE + HARMLESS)[kind]
    before, tried, after = evaluated(box, [GOOD, source, GOOD])
    assert before["score"] == after["score"] == 2.0
    assert box.handle.alive()
    if kind in named(HARMLESS):
        assert (tried["score"], tried["error"]) == (2.0, None)
    else:
        assert (tried["success"], tried["score"], tried["scores"]) == (False, None, [])
        assert tried["error"]
    assert not processes(box)


def processes(box: Environment) -> list[str]:
    """Processes in the box other than its own."""
    source = (
        "def action_look(self):\n"
        "    names = []\n"
        "    for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "        with open(f'/proc/{pid}/cmdline') as file:\n"
        "            names.append(file.read())\n"
        "    return [name for name in names if 'trial' in name]\n"
        "self.add_action('Look', action_look)\n"
    )
    executed = box.execute(next(step_ids), Execute(op="run", type="action", source=source))  # type: ignore[arg-type]
    assert executed.error is None, executed.error
    found: list[str] = executed.value
    return found


@pytest.mark.parametrize(
    ("evaluator", "why"),
    [
        ("def evaluate(function):\n    return float('nan')\n", "evaluator: ValueError: its score is nan"),
        ("def evaluate(function):\n    return []\n", "evaluator: ValueError: it gives 0 numbers"),
        ("def evaluate(function):\n    return 'much'\n", "evaluator: ValueError"),
        ("def evaluate(function):\n    return None\n", "evaluator: TypeError"),
        ("def evaluate(function):\n    return function(1, 2)\n", "evaluator: TypeError: f() takes 1 positional"),
        ("def rate(function):\n    return 1\n", "evaluator: NameError: it defines no function evaluate"),
        ("def evaluate(function:\n", "evaluator: SyntaxError"),
        ("import os\ndef evaluate(function):\n    os._exit(0)\n", "the evaluator's process ended"),
        ("def evaluate(function):\n    while True:\n        pass\n", "it took longer than 0.5 seconds"),
    ],
)
def test_a_failing_evaluator_reports_its_error(box: Environment, evaluator: str, why: str) -> None:
    [tried] = evaluated(box, [GOOD], evaluator=evaluator)
    assert tried["score"] is None
    assert tried["error"].startswith(why)


def test_an_evaluator_may_catch_a_programs_exception_but_not_its_timeout(box: Environment) -> None:
    patient = (
        "def evaluate(function):\n"
        "    try:\n"
        "        function('x')\n"
        "    except TypeError:\n"
        "        return 5\n"
        "    except BaseException:\n"
        "        return 9\n"
    )
    ends = "import os\ndef f(x):\n    if x == 'x':\n        os._exit(1)\n    return x + 1\n"
    tried, ended = evaluated(box, [GOOD, ends], evaluator=patient)
    assert tried["score"] == 5.0
    assert (ended["score"], ended["error"]) == (None, "program: its process ended")


def test_plain_data_arrives_unchanged_in_the_box(box: Environment) -> None:
    data = "[None, True, 1, -2**70, 1.5, float('inf'), 'é', b'\\x00', (1, (2,)), [()], {1, 2}, {(1, 2): {'a': [0]}}]"
    tests = f"def test(function):\n    data = {data}\n    assert function(data, again=2) == [data, data]\n"
    [tried] = evaluated(box, ["def f(x, again):\n    return [x] * again\n"], tests=tests, evaluator="")
    assert tried == {"success": True, "score": None, "scores": [], "error": None}


def test_equal_programs_get_equal_results(box: Environment) -> None:
    source = "import random\ndef f(x):\n    return x + 1 + (random.random() if x > 1 else 0)\n"
    first, second = evaluated(box, [source, source])
    assert first["score"] is not None
    assert first == second == evaluated(box, [source])[0]


def test_programs_are_also_confined_without_isolation() -> None:
    with tempfile.TemporaryDirectory(prefix="weavegen-test-") as home:
        config: Config = configuration.load({"WEAVEGEN_HOME": home, "WEAVEGEN_SANDBOX": "none"})
        environment = Environment.start(config, next(trace_ids))
        try:
            for kind in ("kill the parent", "read a file", "program", "exit"):
                tried, after = evaluated(environment, [named(HOSTILE)[kind], GOOD])
                assert (tried["score"], after["score"]) == (None, 2.0), kind
        finally:
            environment.stop(keep_workspace=False)
