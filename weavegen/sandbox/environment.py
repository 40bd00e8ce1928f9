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
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import weavegen
from weavegen.channels.exchange import Chat, private_channels
from weavegen.config import Config
from weavegen.errors import EnvironmentFailure
from weavegen.kernel.steps import Execute, Executed, Op
from weavegen.sandbox import groups
from weavegen.sandbox.children import tail
from weavegen.sandbox.client_session import (
    Ask,
    BlockBrief,
    Blocks,
    Broken,
    Conversation,
    listen,
    no_blocks,
    sync,
    undecided,
)
from weavegen.sandbox.providers import Box, Handle, Limits, Sandbox, provider
from weavegen.sandbox.watch import State, note_memory, watching
from weavegen.services.folders import private

__all__ = [
    "Ask",
    "BlockBrief",
    "Blocks",
    "Chat",
    "Environment",
    "Limits",
    "dry_run",
    "epitaph",
    "no_blocks",
    "remove",
    "running",
]

PROJECT = Path(weavegen.__file__).resolve().parent.parent
MAIN = "import sys; sys.path.insert(0, sys.argv[1]); from weavegen.box.boot import main; main(int(sys.argv[2]))"


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
        model_name: str = "none",
        port: int = 5000,
        network: str = "none",
        limits: Limits | None = None,
    ) -> "Environment":
        """Start the trace's environment, with an empty /app; one that still runs is killed.

        `network` "host" lets it use the host's. It outlives this process. Raises EnvironmentFailure if it does
        not answer in time.
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
            layout, path = sandbox.layout(workspace), socket_path(config, trace_id)
            for leftover in (path, path.with_suffix(".why")):
                leftover.unlink(missing_ok=True)
            args = {"budget": budget, "port": port, "model_name": model_name, "params": params or {}}
            # The parameters are read from a file that has no name: a command line could be read in the box.
            with socket.socket(socket.AF_UNIX) as listener, tempfile.TemporaryFile("w+") as file:
                listener.bind(os.fspath(path))
                path.chmod(0o600)
                listener.listen(16)
                json.dump({"app": layout.app, "listener": listener.fileno(), "seed": seed, "args": args}, file)
                file.seek(0)
                box = Box(
                    workspace=workspace,
                    uid=uid,
                    command=(layout.python, "-sSPB", "-c", MAIN, layout.code, str(file.fileno())),
                    environ={"PYTHONHASHSEED": str(seed % 2**32), "TERM": "xterm-256color"},
                    folders=shown(),
                    descriptors=(listener.fileno(), file.fileno()),
                    log=log_path(config, trace_id),
                    limits=limits,
                    network=network,
                )
                handle = sandbox.start(box)
            State(handle, limits).write(path.with_suffix(".json"))
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
        path = socket_path(config, trace_id)
        state = State.read(path.with_suffix(".json"))
        if state is None or not state.handle.alive():
            return None
        workspace = config.workspaces / str(trace_id)
        return cls(trace_id, state.handle, path, workspace, provider(config.sandbox), limits or state.limits)

    def execute(
        self,
        step_id: int,
        step: Execute,
        blocks: Blocks = no_blocks,
        ask: Ask = undecided,
        limits: Limits | None = None,
        chat: Chat | None = None,
    ) -> Executed:
        """Run a step, or get the result of one that was run under this id before.

        Blocks for `limits.seconds` and the grace at most, plus the time that `ask` and `chat` take. Raises
        EnvironmentFailure if the process died, hung or talked nonsense (it is dead then), and TransientError
        if another worker has taken this step over. What `blocks`, `ask` and `chat` raise passes through; the step
        stays answerable under its id.
        """
        limits = limits or self.limits
        op = {
            "step_id": step_id,
            "op": step.op,
            "subagent": step.subagent,
            "type": step.type,
            "source": step.source,
            "seconds": limits.seconds,
        }
        try:
            with Conversation(self.socket_path, limits.seconds + limits.grace) as talk:
                for message in sync(blocks, talk.hello()):
                    talk.send(message)
                talk.send({"op": op})
                return listen(talk, ask, chat or private_channels(), step_id, step)
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
            path = self.socket_path.with_suffix(".json")
            state = State.read(path)
            if state is not None and state.handle == self.handle:  # and not that of one that was started since
                self.socket_path.unlink(missing_ok=True)
                path.unlink(missing_ok=True)
        if not keep_workspace:
            shutil.rmtree(self.workspace, ignore_errors=True)

    def dead(self, error: "Broken") -> EnvironmentFailure:
        """Make sure that it is, and say why."""
        alive = self.handle.alive()
        what = "died" if error.cut or not alive else "was killed"
        why = self.socket_path.with_suffix(".why")
        if what == "died":
            note_memory(why, self.handle, self.limits)
        self.stop()
        if why.exists():
            return EnvironmentFailure(f"the environment process was killed: {why.read_text()}")
        return EnvironmentFailure(f"the environment process {what}: {error}")


def dry_run(
    config: Config,
    source: str,
    params: dict[str, Any] | None = None,
    limits: Limits | None = None,
    ops: Sequence[Op] = ("bootstrap",),
    network: str = "none",
) -> list[Executed]:
    """What `ops` do, one after another, in a throw-away environment with a model that never knows.

    Stops after the first that fails as a whole, so the last one says whether all went well; and where an action
    waits for a subagent, whose ticks nobody would write.
    """
    done: list[Executed] = []
    chat = private_channels()
    with tempfile.TemporaryDirectory(prefix="weavegen-") as home:
        config = replace(config, home=Path(home))
        with watching(private(config.runtime)):
            environment = Environment.start(config, 0, params=params, network=network, limits=limits)
            try:
                for number, op in enumerate(ops, 1):
                    done.append(environment.execute(number, Execute(op=op, source=source), chat=chat))
                    if done[-1].error is not None or done[-1].waits_for is not None:
                        break
            finally:
                environment.stop()
    return done


def socket_path(config: Config, trace_id: int) -> Path:
    return private(config.runtime) / f"env-{trace_id}.sock"


def running(config: Config) -> list[Environment]:
    """All environments that live on this host."""
    numbers = [path.stem.removeprefix("env-") for path in private(config.runtime).glob("env-*.json")]
    found = [Environment.find(config, int(number)) for number in numbers if number.isdecimal()]
    return [environment for environment in found if environment is not None]


def remove(config: Config, trace_id: int) -> None:
    """Stop a trace's environment, if it still lives, and delete everything that it has on this host."""
    if found := Environment.find(config, trace_id):
        found.stop()
    path = socket_path(config, trace_id)
    if state := State.read(path.with_suffix(".json")):
        groups.remove(state.handle.groups)
    for leftover in (path, path.with_suffix(".json"), path.with_suffix(".why"), log_path(config, trace_id)):
        leftover.unlink(missing_ok=True)
    shutil.rmtree(config.workspaces / str(trace_id), ignore_errors=True)


def log_path(config: Config, trace_id: int) -> Path:
    return config.logs / f"environment-{trace_id}.log"


def shown() -> dict[str, Path]:
    """What can be imported in the box besides the standard library."""
    folders = {"bootstraps": PROJECT / "bootstraps", "tools": PROJECT / "bootstraps" / "tools"}
    return {name: folder for name, folder in folders.items() if folder.is_dir()}


def epitaph(config: Config, trace_id: int) -> str | None:
    """Why the trace's last environment was killed, where a limit was the reason."""
    path = socket_path(config, trace_id)
    why = path.with_suffix(".why")
    if state := State.read(path.with_suffix(".json")):
        note_memory(why, state.handle, state.limits)
    return why.read_text() if why.exists() else None


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
