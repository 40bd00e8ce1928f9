"""What a worker uses: start a trace's environment, find it again, have it execute steps, stop it.

    environment = Environment.find(config, trace_id) or Environment.start(config, trace_id, seed=7)
    executed = environment.execute(step_id, step, blocks_since, ask)

Everything that comes out of the box is untrusted: it is bounded in size and time, and checked against
`steps.Executed`. Whatever is wrong with it is an EnvironmentFailure, and the environment is killed.
"""

import contextlib
import fcntl
import json
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

import weavegen
from weavegen.config import Config
from weavegen.environment.sandbox import Box, Handle, Limits, Sandbox, provider
from weavegen.environment.sandbox.children import tail
from weavegen.environment.wire import FROM_BOX, TO_BOX, BrokenFrame, Reader, frame
from weavegen.errors import EnvironmentFailure, ModelError, TransientError, UsageError
from weavegen.steps import Execute, Executed

PROJECT = Path(weavegen.__file__).resolve().parent.parent
SYNC = 2**20
"""Bytes of blocks that go into one message."""
PROMPTS = 4_096
"""Prompts that one operation may have answered."""
MAIN = (
    "import sys; sys.path.insert(0, sys.argv[1]); from weavegen.environment.runner import main; main(sys.argv[2])"
)


class BlockBrief(msgspec.Struct, frozen=True):
    """A recorded block, as far as the environment needs to know it."""

    index: int
    type: str
    body: str


Blocks = Callable[[int], list[BlockBrief]]
"""The trace's blocks from this index on."""
Ask = Callable[[list[str]], list[tuple[float, float]]]
"""The model's mass of yes and of no after each of these prompts."""


def no_blocks(since: int) -> list[BlockBrief]:
    return []


def undecided(prompts: list[str]) -> list[tuple[float, float]]:
    """A model that never knows."""
    return [(0.5, 0.5)] * len(prompts)


@dataclass(frozen=True)
class Environment:
    """The live process of one trace, on this host. Its state is in the process; this is how to reach it."""

    trace_id: int
    handle: Handle
    socket_path: Path
    workspace: Path
    sandbox: Sandbox
    limits: Limits = field(default_factory=Limits)

    @property
    def pid(self) -> int:
        return self.handle.pid

    @classmethod
    def start(
        cls,
        config: Config,
        trace_id: int,
        *,
        seed: int = 0,
        params: dict[str, Any] | None = None,
        budget: float = 360.0,
        model_name: str = "",
        port: int = 5000,
        limits: Limits | None = None,
    ) -> "Environment":
        """Start the trace's environment in its workspace, whose files stay; one that still runs is killed.

        It outlives this process. Raises EnvironmentFailure if it does not answer in time.
        """
        limits, sandbox = limits or Limits(), provider(config.sandbox)
        workspace = config.workspaces / str(trace_id)
        workspace.mkdir(parents=True, exist_ok=True)
        config.logs.mkdir(parents=True, exist_ok=True)
        uid = sandbox.uid(trace_id, config.workspaces)
        with locked(workspace):
            if old := cls.find(config, trace_id):
                sandbox.kill(old.handle)
            workspace.chmod(0o700)
            if uid != os.getuid():
                os.chown(workspace, uid, uid)
            layout, path = sandbox.layout(workspace), runtime(config) / f"env-{trace_id}.sock"
            path.unlink(missing_ok=True)
            args = {"budget": budget, "port": port, "model_name": model_name, "params": params or {}}
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(os.fspath(path))
                listener.listen(16)
                spec = {"app": layout.app, "listener": listener.fileno(), "seed": seed, "args": args}
                box = Box(
                    workspace=workspace,
                    uid=uid,
                    command=(layout.python, "-sSPB", "-c", MAIN, layout.code, json.dumps(spec)),
                    environ={"PYTHONHASHSEED": str(seed % 2**32), "TERM": "xterm-256color"},
                    folders=shown(),
                    descriptors=(listener.fileno(),),
                    log=config.logs / f"environment-{trace_id}.log",
                    limits=limits,
                )
                handle = sandbox.start(box)
            write_state(path.with_suffix(".json"), handle)
        self = cls(trace_id, handle, path, workspace, sandbox, limits)
        try:
            self.ping(limits.start)
        except EnvironmentFailure as error:
            raise EnvironmentFailure(f"{error} {tail(box.log)}".strip()) from error
        if box.log.stat().st_size == 0:
            box.log.unlink()
        return self

    @classmethod
    def find(cls, config: Config, trace_id: int, limits: Limits | None = None) -> "Environment | None":
        """The trace's environment, if it lives on this host."""
        path = runtime(config) / f"env-{trace_id}.sock"
        handle = read_state(path.with_suffix(".json"))
        if handle is None or not handle.alive():
            return None
        sandbox = provider(config.sandbox)
        return cls(trace_id, handle, path, config.workspaces / str(trace_id), sandbox, limits or Limits())

    def execute(
        self,
        step_id: int,
        step: Execute,
        blocks: Blocks = no_blocks,
        ask: Ask = undecided,
        limits: Limits | None = None,
    ) -> Executed:
        """Run a step, or get the result of one that was run under this id before.

        Blocks for `limits.seconds` and the grace at most, plus the time that `ask` takes. Raises
        EnvironmentFailure if the process died, hung or talked nonsense (it is dead then), and TransientError
        if another worker has taken this step over. What `blocks` and `ask` raise passes through; the step
        stays answerable under its id.
        """
        limits = limits or self.limits
        op = {
            "step_id": step_id,
            "op": step.op,
            "type": step.type,
            "source": step.source,
            "seconds": limits.seconds,
        }
        try:
            with Conversation(self.socket_path, limits.seconds + limits.grace) as talk:
                for message in sync(blocks, talk.hello()):
                    talk.send(message)
                talk.send({"op": op})
                return listen(talk, ask)
        except Broken as error:
            raise self.dead(error) from error

    def ping(self, seconds: float = 5.0) -> None:
        """Raise EnvironmentFailure unless it answers in time."""
        try:
            with Conversation(self.socket_path, seconds) as talk:
                talk.hello()
        except Broken as error:
            raise self.dead(error) from error

    def alive(self) -> bool:
        return self.handle.alive()

    def stop(self, *, keep_workspace: bool = True) -> None:
        """End every process of the environment and remove its socket; the workspace too, unless it is kept."""
        self.sandbox.kill(self.handle)
        with locked(self.workspace):
            state = self.socket_path.with_suffix(".json")
            if read_state(state) == self.handle:  # and not that of one that was started since
                self.socket_path.unlink(missing_ok=True)
                state.unlink(missing_ok=True)
        if not keep_workspace:
            shutil.rmtree(self.workspace, ignore_errors=True)

    def dead(self, error: "Broken") -> EnvironmentFailure:
        """Make sure that it is, and say why."""
        what = "died" if error.cut or not self.handle.alive() else "was killed"
        self.stop()
        return EnvironmentFailure(f"the environment process {what}: {error}")


# ------------------------------------------------------------------------------------- the conversation


class Hello(msgspec.Struct, frozen=True):
    blocks: int


class Question(msgspec.Struct, frozen=True):
    number: int
    prompts: list[str]


class Message(msgspec.Struct, frozen=True):
    """What the box may say; one of these."""

    hello: Hello | None = None
    ask: Question | None = None
    result: Executed | None = None
    replaced: bool = False


class Broken(Exception):
    """The conversation can't go on: cut, out of time, or nonsense."""

    def __init__(self, text: str, *, cut: bool = False):
        super().__init__(text)
        self.cut = cut


class Conversation:
    """A connection to an environment, and the time that is left for it. Raises Broken, and nothing else."""

    decoder = msgspec.json.Decoder(Message)

    def __init__(self, path: Path, seconds: float):
        self.deadline = time.monotonic() + seconds
        self.seconds = seconds
        self.reader = Reader(FROM_BOX)
        self.payloads: list[bytes] = []
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.settimeout(seconds)
        try:
            self.connection.connect(os.fspath(path))
        except OSError as error:
            self.connection.close()
            raise Broken(f"it can't be reached: {error}", cut=True) from error

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(self, *exception: object) -> None:
        self.connection.close()

    def send(self, message: dict[str, Any]) -> None:
        with self.in_time():
            self.connection.sendall(frame(message, TO_BOX))

    def receive(self) -> Message:
        with self.in_time():
            while not self.payloads:
                data = self.connection.recv(2**18)
                if not data:
                    raise Broken("it closed the connection", cut=True)
                self.payloads += self.reader.feed(data)
                self.connection.settimeout(max(self.deadline - time.monotonic(), 0.001))
            return self.decoder.decode(self.payloads.pop(0))

    def hello(self) -> int:
        """How many blocks it knows."""
        hello = self.receive().hello
        if hello is None:
            raise Broken("it did not greet")
        return hello.blocks

    @contextlib.contextmanager
    def in_time(self) -> Iterator[None]:
        try:
            self.connection.settimeout(max(self.deadline - time.monotonic(), 0.001))
            yield
        except TimeoutError as error:
            raise Broken(f"no answer within {self.seconds:g} seconds") from error
        except OSError as error:
            raise Broken(str(error), cut=True) from error
        except (BrokenFrame, msgspec.MsgspecError) as error:
            raise Broken(f"it sent what it may not: {error}") from error

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let the time of the body not count."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.deadline += time.monotonic() - began


def sync(blocks: Blocks, known: int) -> Iterator[dict[str, Any]]:
    """Messages that tell the box of the blocks it does not know."""
    part: list[tuple[int, str, str]] = []
    size = 0
    for block in blocks(known):
        part.append((block.index, str(block.type), block.body))
        size += len(block.body)
        if size > SYNC:
            yield {"blocks": part}
            part, size = [], 0
    if part:
        yield {"blocks": part}


def listen(talk: Conversation, ask: Ask) -> Executed:
    """Answer the box's questions until it has a result."""
    prompts = 0
    while True:
        message = talk.receive()
        if message.result is not None:
            return message.result
        if message.replaced:
            raise TransientError("another worker waits for this step now")
        if message.ask is None:
            raise Broken("it said nothing that makes sense")
        prompts += len(message.ask.prompts)
        if prompts > PROMPTS:
            raise Broken(f"it asked the model more than {PROMPTS:,} times in one operation")
        with talk.paused():
            try:
                answers: dict[str, Any] = {"values": ask(message.ask.prompts)}
            except ModelError as error:
                answers = {"error": str(error)}
        talk.send({"answers": {"number": message.ask.number, **answers}})


# ------------------------------------------------------------------------------------------ on the host


def dry_run(
    config: Config, source: str, params: dict[str, Any] | None = None, limits: Limits | None = None
) -> Executed:
    """What a bootstrap file does, in a throw-away environment with a model that never knows."""
    with tempfile.TemporaryDirectory(prefix="weavegen-") as home:
        os.chmod(home, 0o711)
        environment = Environment.start(replace(config, home=Path(home)), 0, params=params, limits=limits)
        try:
            return environment.execute(1, Execute(op="bootstrap", source=source))
        finally:
            environment.stop()


def runtime(config: Config) -> Path:
    """The folder for sockets, open to nobody else. Raises UsageError."""
    folder = config.runtime
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{folder} belongs to somebody else: set WEAVEGEN_HOME to a shorter path")
    if status.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def shown() -> dict[str, Path]:
    """What can be imported in the box besides the standard library."""
    folders = {"bootstraps": PROJECT / "bootstraps", "tools": Path(__file__).resolve().parent / "tools"}
    return {name: folder for name, folder in folders.items() if folder.is_dir()}


def read_state(path: Path) -> Handle | None:
    """The process that was started last, if it has not been stopped since."""
    try:
        state = json.loads(path.read_text())
        return Handle(int(state["pid"]), float(state["created"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None


def write_state(path: Path, handle: Handle) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"pid": handle.pid, "created": handle.created}))
    new.rename(path)


@contextlib.contextmanager
def locked(workspace: Path) -> Iterator[None]:
    """One start or stop of a trace's environment at a time, across all processes of the host."""
    try:
        descriptor = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:  # it was removed: there is nothing left to quarrel about
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
