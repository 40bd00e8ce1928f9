"""Candidates that run in copies of an environment, in real boxes: what they bring back, and that they leave nothing."""

import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from weavegen import config as configuration
from weavegen.box.trying import OPERATIONS
from weavegen.channels.exchange import Exchange, private_channels
from weavegen.kernel.steps import Execute, Executed
from weavegen.sandbox.environment import Environment
from weavegen.sandbox.providers import Limits
from weavegen.trace.blocks import BlockType

step_ids = itertools.count(1)
trace_ids = itertools.count(1)
WORLD = '''
import hashlib, http.server, threading, urllib.request

count, notes, log = [0], [], open("log.txt", "w")

class Counter(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        count[0] += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(count[0]).encode())

    def log_message(self, *arguments):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Counter)
threading.Thread(target=server.serve_forever, daemon=True).start()

def get():
    with urllib.request.urlopen("http://127.0.0.1:8000", timeout=5) as answer:
        return int(answer.read())

def were_there_two(self):
    return count[0] == 2

def show_notes(self):
    return ", ".join(notes) or "none"

def state():
    """All that a trial could have changed."""
    files = {}
    for folder in (".", "/tmp", "/dev/shm"):
        for at, folders, names in os.walk(folder):
            for name in names + folders:
                path = os.path.join(at, name)
                status = os.lstat(path)
                is_file = os.path.isfile(path) and not os.path.islink(path)
                held = open(path, "rb").read() if is_file else b""
                files[path] = [status.st_mode, status.st_mtime_ns if is_file else 0, held]
    processes = sorted(name for name in os.listdir("/proc") if name.isdigit())
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}").partition(":")[0])
        except OSError:
            pass
    # The thread that answered the last request may not have ended yet.
    threads = sorted(thread.name for thread in threading.enumerate() if "process_request" not in thread.name)
    objects = [count, notes, sorted(agent.agents), sorted(self.tools), random.getstate()[1][-1], sorted(os.environ)]
    parts = [sorted(files.items()), processes, sorted(links), threads, objects, log.tell(), os.getcwd()]
    return [hashlib.sha256(repr(part).encode()).hexdigest()[:8] for part in parts]

def action_set_up(self):
    os.makedirs("data/deep")
    open("data/deep/a.txt", "w").write("one")
    os.symlink("a.txt", "data/deep/link")
    log.write("begun")
    log.flush()
    self.task.add_evaluation("Were there two?", were_there_two)
    self.add_observation_view("Notes", show_notes)
    return get()

self.add_action("Set up", action_set_up)
'''
Try = Callable[..., Executed]


@pytest.fixture
def environment() -> Iterator[Environment]:
    with tempfile.TemporaryDirectory(prefix="weavegen-test-") as home:
        Path(home).chmod(0o711)
        environment = Environment.start(configuration.load({"WEAVEGEN_HOME": home}), next(trace_ids))
        executed = environment.execute(next(step_ids), Execute(op="bootstrap", source=WORLD))
        assert executed.value == 1, executed.error
        yield environment
        environment.stop(keep_workspace=False)


def action(body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"def action_test(self):\n{lines}\nself.add_action('Test', action_test)\n"


def tried(environment: Environment, *bodies: str, seconds: float = 10.0, **options: Any) -> Executed:
    """Try actions with these bodies, each operation for at most `seconds`."""
    step = Execute(
        op="try",
        type=BlockType.ACTION,
        source=json.dumps(list(map(action, bodies))),
        candidates=tuple((0, at) for at in range(len(bodies))),
    )
    limits = Limits(seconds=seconds * OPERATIONS * len(bodies))
    return environment.execute(next(step_ids), step, limits=limits, **options)


def value(environment: Environment, body: str) -> Any:
    executed = environment.execute(next(step_ids), Execute(op="run", type=BlockType.ACTION, source=action(body)))
    assert executed.error is None, executed.error
    return executed.value


CHANGES = {
    "files": "open('data/deep/a.txt', 'w').write('two')\nopen('new.txt', 'w').write('new')\nos.mkdir('/tmp/new')",
    "removed files": "import shutil\nshutil.rmtree('data')\nos.symlink('/etc', 'data')",
    "renamed files": "os.rename('data/deep', 'data/other')\nos.chmod('data', 0o500)",
    "a file in memory": (
        "import mmap\nwith open('data/deep/a.txt', 'r+b') as file, mmap.mmap(file.fileno(), 0) as held:\n"
        "    assert held[0]\n    held[0] = 88"
    ),
    "a replaced file": "os.unlink('data/deep/a.txt')\nopen('data/deep/a.txt', 'w').write('one')",
    "a link": "os.unlink('data/deep/link')\nos.symlink('b.txt', 'data/deep/link')",
    "an open file": "log.write('more')\nlog.flush()\nos.truncate('log.txt', 2)",
    "shared memory": "open('/dev/shm/left', 'w').write('x')",
    "objects": "notes.append('tried')\ncount[0] += 5\nrandom.random()\nos.environ['LEFT'] = '1'\nos.chdir('/tmp')",
    "requests to a server": "assert [get(), get()] == [2, 3]",
    "processes": "import subprocess\nfor _ in range(9): subprocess.Popen(['sleep', '60'], start_new_session=True)",
    "a daemon": "import subprocess\nsubprocess.run(['bash', '-c', 'setsid sleep 60 & disown'])",
    "threads": "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "a server of its own": "http.server.ThreadingHTTPServer(('127.0.0.1', 8001), Counter)",
    "tools": "from tools.editor import WeaveEditor\nWeaveEditor(self, 'story.txt').append('Once')",
    "a subagent": "agent.subagent('other', self.name, 'Other', {}, 1)",
    "a closed server": "server.shutdown()\nserver.server_close()",
    "its end": "os._exit(3)",
    "its death": "os.kill(os.getpid(), 9)",
    "an endless loop": "while True: pass",
    "an endless loop without a signal": (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})\nwhile True: pass"
    ),
    "a fork": "if os.fork() == 0:\n    while True: time.sleep(1)",
    "many forks": "try:\n    while True: os.fork()\nexcept OSError: pass",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_trial_leaves_nothing_behind(environment: Environment, change: str) -> None:
    before = value(environment, "return state()")
    done = tried(environment, CHANGES[change], CHANGES[change], seconds=1.0)
    assert done.not_tried is None
    assert len(done.trials) == 2
    assert value(environment, "return state()") == before
    assert value(environment, "return get()") == 2, "Does the server still serve?"


def test_an_outcome_is_what_really_happened(environment: Environment) -> None:
    def ask(prompts: list[str]) -> list[tuple[float, float]]:
        return [(0.9, 0.1)] * len(prompts)

    question = "simple_evaluate_outputs(make_simple_score_prompt('Is it?'), ['text'])"
    done = tried(
        environment,
        f"notes.append('tried')\nprint('hello')\nassert get() == 2, 'Are there two?'\nreturn {question}",
        "assert get() == 5, 'Are there five?'",
        "return generate_outputs_vllm('', 'Once', 3, n=2)",
        "agent.subagent('z', self.name, 'Z', {}, 1)\nreturn agent.run('z')",
        "return self.generate_block('debug')",
        "os._exit(3)",
        ask=ask,
        complete=lambda request: ["upon"] * request.n,
    )
    first, second, third, fourth, fifth, sixth = done.trials
    assert (first.value, first.error, first.output) == ([pytest.approx(0.9)], None, "hello\n")
    assert [(one.question, one.answer) for one in first.assertions] == [("Are there two?", True)]
    assert [(one.title, one.value) for one in first.evaluations] == [("Were there two?", True)]
    assert [(view.title, view.text) for view in first.views] == [("Notes", "tried")]
    assert 0 < first.seconds < 10
    assert second.error is not None
    assert second.error.type == "AssertionError"
    assert [(one.question, one.answer) for one in second.assertions] == [("Are there five?", False)]
    assert third.value == ["upon", "upon"]
    assert fourth.not_tried == fifth.not_tried == "it waits for another agent"
    assert sixth.error is not None
    assert sixth.error.stage == "process"


def test_an_evaluation_is_run_when_it_is_tried(environment: Environment) -> None:
    """It is registered, so it ran; whether it raised is in its result. The task's evaluations are not run again."""
    bodies = ("return count[0] == 1", "return unknown", "return self.generate_block('debug')")
    sources = [action(body).replace("add_action", "add_evaluation") for body in bodies]
    step = Execute(op="try", type=BlockType.EVALUATION, source=json.dumps(sources), candidates=((0, 0), (0, 1), (0, 2)))
    done = environment.execute(next(step_ids), step)
    assert [one.error for one in done.trials] == [None] * 3
    found = [
        [(each.scope, each.value, each.error and each.error.type) for each in one.evaluations] for one in done.trials
    ]
    assert found == [[("tick", True, None)], [("tick", None, "NameError")], []]
    assert value(environment, "return len(self.current_tick.evaluations)") == 0


def test_messages_are_read_and_not_delivered(environment: Environment) -> None:
    hall = private_channels()
    talk = (
        "from tools.discord import WeaveDiscordClient\nchat = WeaveDiscordClient(self, '', 'hall')\n"
        "chat.send_message('{}')\nreturn [one['content'] for one in chat.get_messages()]"
    )
    step = Execute(op="run", type=BlockType.ACTION, source=action(talk.format("Hello")))
    assert environment.execute(next(step_ids), step, chat=hall).value == ["Hello"]
    done = tried(environment, talk.format("Nobody hears"), chat=hall)
    assert done.not_tried is None
    assert done.trials[0].value == ["Hello"]
    step = Execute(op="run", type=BlockType.ACTION, source=action(talk.format("Bye")))
    assert environment.execute(next(step_ids), step, chat=hall).value == ["Hello", "Bye"]


def test_a_channel_that_a_copy_opens_can_be_read_there_and_refuses_as_it_does_later(environment: Environment) -> None:
    here, open_ones = private_channels(), {"hall"}

    def chat(exchange: Exchange) -> dict[str, Any]:
        if exchange.do == "open":
            open_ones.add(exchange.channel)
        known = exchange.channel in open_ones
        return here(exchange) if known else {"error": f"there is no channel {exchange.channel!r}: open it"}

    opens = "from tools.discord import WeaveDiscordClient\nreturn WeaveDiscordClient(self, '', 'new').get_messages()"
    unknown = "import weave\nweave.chat({'do': 'read', 'channel': 'nowhere'})"
    done = tried(environment, opens, unknown, chat=chat)
    assert done.trials[0].error is None, done.trials[0].error
    assert (done.trials[0].value, open_ones) == ([], {"hall"})
    step = Execute(op="run", type=BlockType.ACTION, source=action(unknown))
    really = environment.execute(next(step_ids), step, chat=chat).error
    assert really is not None
    assert done.trials[1].error is not None
    assert (done.trials[1].error.type, done.trials[1].error.message) == (really.type, really.message)


def test_each_operation_of_a_copy_has_its_own_time(environment: Environment) -> None:
    value(environment, "notes.clear()\nself.add_observation_view('Slow', lambda self: time.sleep(2) or 'seen')")
    slow = "time.sleep(2)\nnotes.append('ran')"
    [done] = tried(environment, slow, seconds=3).trials
    assert done.error is None, done.error
    assert [view.text for view in done.views] == ["ran", "seen"]
    assert len(done.evaluations) == 1


def test_a_change_that_keeps_a_files_size_is_undone_right_after_the_file_was_written(environment: Environment) -> None:
    for number in range(8):
        value(environment, f"open('data/deep/a.txt', 'w').write('{number}')")
        done = tried(environment, *["open('data/deep/a.txt', 'w').write('x')"] * 2)
        assert [one.error for one in done.trials] == [None, None]
        assert value(environment, "return open('data/deep/a.txt').read()") == str(number)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("import subprocess\nsubprocess.Popen(['sleep', '60'])", "it has processes of its own"),
        ("threading.Thread(target=time.sleep, args=(60,), daemon=True, name='busy').start()", "it has a thread, busy"),
        ("import socket\nglobal pair\npair = socket.socketpair()", "it has an open connection"),
        ("open('large', 'wb').truncate(65 * 2**20)", "more than 5,000 files or 64 MB"),
        ("for n in range(5001): open(f'f{n}', 'w')", "more than 5,000 files or 64 MB"),
    ],
)
def test_what_cannot_be_copied_is_not_tried(environment: Environment, body: str, why: str) -> None:
    value(environment, body)
    done = tried(environment, "return 1")
    assert done.trials == ()
    assert done.not_tried is not None
    assert why in done.not_tried
    assert value(environment, "return get()") == 2


def test_a_thousand_trials_leave_nothing_behind(environment: Environment) -> None:
    before = value(environment, "return state()")
    bodies = [CHANGES[name] for name in ("files", "objects", "requests to a server", "renamed files")]
    for _ in range(25):
        done = tried(environment, *(bodies * 10))
        assert len(done.trials) == 40
        assert {one.error for one in done.trials} == {None}
    assert value(environment, "return state()") == before


def test_a_copy_that_takes_too_much_memory_does_not_end_the_environment(environment: Environment) -> None:
    began = time.monotonic()
    done = tried(environment, "large = bytearray(5 * 2**30)", "return 1")
    assert [one.error and one.error.type for one in done.trials] == ["MemoryError", None]
    assert time.monotonic() - began < 10
    assert value(environment, "return get()") == 2
