"""The environment of a trace, for a worker: start it, find it again, execute steps in it, stop it.

    environment = Environment.find(config, trace_id) or Environment.start(config, trace_id, seed=7)
    executed = environment.execute(step_id, step, blocks_since, ask)

Everything that comes out of the box is untrusted: its size and time are limited, and it is checked against
`steps.Executed`. If a check fails, the environment is killed, and EnvironmentFailure is raised.
"""

import contextlib
import os
import shutil
import socket
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from weavegen import folders
from weavegen.channels.exchange import Chat, private_channels
from weavegen.config import Config
from weavegen.errors import EnvironmentFailure
from weavegen.folders import private
from weavegen.kernel.steps import Execute, Executed, Op
from weavegen.sandbox import groups, image_root
from weavegen.sandbox.children import tail
from weavegen.sandbox.client_session import (
    Ask,
    Blocks,
    CallTool,
    ClientSession,
    Complete,
    SessionBroken,
    await_result,
    block_messages,
    no_tools,
    silent,
    undecided,
)
from weavegen.sandbox.grading import Grader, asked, protected
from weavegen.sandbox.image_root import Root
from weavegen.sandbox.providers import Box, Handle, Limits, provider, start_main
from weavegen.sandbox.starting_files import importable
from weavegen.sandbox.stopping import end
from weavegen.sandbox.watch import BoxState, kill_reason, watching

LOCK_FILES = 256


@dataclass(frozen=True)
class Environment:
    """A reference to the live process of a trace on this host. All state is in that process."""

    trace_id: int
    handle: Handle
    socket_path: Path
    workspace: Path
    limits: Limits = field(default_factory=Limits)

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
        network: str = "none",
        packages: Path | None = None,
        files: Path | None = None,
        limits: Limits | None = None,
        temporary: bool = False,
        root: Root | None = None,
        mcp_servers: dict[str, Any] | None = None,
    ) -> "Environment":
        """Start the trace's environment with an empty /app, and kill the old one if it still runs.

        `budget`: minutes. `network`: "none", or "host" for the host's network. `packages`: a folder of packages
        that blocks may import (sandbox/packages.py). `files`: a folder with the initial files of /app. `root`: an
        image as the root file system. `mcp_servers`: those of box/mcp.py. The environment outlives this process,
        unless it is `temporary`. Raises EnvironmentFailure if it does not answer in time.
        """
        limits, sandbox = limits or Limits(), provider(config.sandbox)
        workspace = config.workspaces / str(trace_id)
        config.logs.mkdir(parents=True, exist_ok=True)
        with locked(private(config.runtime), trace_id):
            if old := cls.find(config, trace_id):
                end(old.handle)
            workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
            workspace.chmod(0o700)
            if root is not None:
                image_root.remove(root.changes)
                root.prepare()
            path = socket_path(config, trace_id)
            for leftover in (path, path.with_suffix(".why")):
                leftover.unlink(missing_ok=True)
            args = {"budget": budget, "port": 5000, "model_name": model_name, "params": params or {}}
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(os.fspath(path))
                path.chmod(0o600)
                listener.listen(16)
                box = Box(
                    workspace=workspace,
                    uid=sandbox.uid(trace_id, config.workspaces),
                    log=log_path(config, trace_id),
                    limits=limits,
                    environ={"PYTHONHASHSEED": str(seed % 2**32), "TERM": "xterm-256color"},
                    folders=importable(files) if root is None else {},
                    descriptors=(listener.fileno(),),
                    packages=packages,
                    files=files,
                    network=network,
                    temporary=temporary,
                    root=root,
                )
                spec = {"seed": seed, "listener": listener.fileno(), "args": args, "mcp_servers": mcp_servers or {}}
                spec["user"] = None if root is None else root.user
                handle = start_main(sandbox, "boot", spec, box)
            BoxState(handle, limits, "" if root is None else str(root.changes)).write(path.with_suffix(".json"))
        self = cls(trace_id, handle, path, workspace, limits)
        try:
            self.ping(limits.start)
        except EnvironmentFailure as error:
            raise EnvironmentFailure(f"{error} {tail(box.log)}".strip()) from error
        # Another worker may have removed or replaced this environment since, and somebody may remove old logs.
        with locked(private(config.runtime), trace_id), contextlib.suppress(FileNotFoundError):
            if self._is_latest() and box.log.stat().st_size == 0:
                box.log.unlink()
        return self

    @classmethod
    def find(cls, config: Config, trace_id: int) -> "Environment | None":
        """Return the trace's environment if it lives on this host."""
        path = socket_path(config, trace_id)
        state = BoxState.read(path.with_suffix(".json"))
        if state is None or not state.handle.alive():
            return None
        return cls(trace_id, state.handle, path, config.workspaces / str(trace_id), state.limits)

    def execute(
        self,
        step_id: int,
        step: Execute,
        blocks: Blocks = lambda known: [],
        ask: Ask = undecided,
        limits: Limits | None = None,
        chat: Chat | None = None,
        complete: Complete = silent,
        tool: CallTool = no_tools,
    ) -> Executed:
        """Execute a step. If this id was executed before, return that result.

        Takes at most `limits.seconds + limits.grace`, plus the time of `ask`, `chat`, `complete` and `tool`. Raises
        EnvironmentFailure, after killing the process, if it died, hung or sent an invalid message; TransientError
        if another worker has taken the step over. Their errors and those of `blocks` pass through; the step can
        then be requested again under its id.
        """
        limits = limits or self.limits
        op = {name: getattr(step, name) for name in ("op", "subagent", "type", "source")}
        op |= {"step_id": step_id, "seconds": limits.seconds}
        try:
            with ClientSession(self.socket_path, limits.seconds + limits.grace) as session:
                for message in block_messages(blocks, session.hello()):
                    session.send(message)
                session.send({"op": op})
                return await_result(session, ask, complete, chat or private_channels(), tool, step_id, step)
        except SessionBroken as error:
            raise self.failure(error) from error

    def ping(self, seconds: float = 5.0) -> None:
        """Raise EnvironmentFailure unless the environment answers in time."""
        try:
            with ClientSession(self.socket_path, seconds) as session:
                session.hello()
        except SessionBroken as error:
            raise self.failure(error) from error

    def stop(self, *, keep_workspace: bool = True) -> None:
        """Kill every process of the environment and remove its socket, and its workspace unless it is kept."""
        end(self.handle)
        with locked(self.socket_path.parent, self.trace_id):
            if not self._is_latest():
                return
            self.socket_path.unlink(missing_ok=True)
            self.socket_path.with_suffix(".json").unlink(missing_ok=True)
            if not keep_workspace:
                shutil.rmtree(self.workspace, ignore_errors=True)

    def _is_latest(self) -> bool:
        """Whether this environment was neither removed nor replaced by a newer one of the trace."""
        state = BoxState.read(self.socket_path.with_suffix(".json"))
        return state is not None and state.handle == self.handle

    def failure(self, error: SessionBroken) -> EnvironmentFailure:
        """Kill the environment after `error`. Returns the exception with the reason."""
        how = "died" if error.cut or not self.handle.alive() else "was killed"
        cause = kill_reason(self.socket_path, None if how == "was killed" else BoxState(self.handle, self.limits))
        self.stop()
        if cause is not None:
            return EnvironmentFailure(f"the environment process was killed: {cause}")
        return EnvironmentFailure(f"the environment process {how}: {error}")


def dry_run(
    config: Config,
    source: str,
    params: dict[str, Any] | None = None,
    limits: Limits | None = None,
    ops: Sequence[Op] = ("bootstrap",),
    network: str = "none",
    packages: Path | None = None,
    files: Path | None = None,
) -> list[Executed]:
    """Execute `ops` one after another in a temporary environment.

    The evaluator always answers 50%, and completions are empty. Stops after an operation that fails, so that the last
    result tells whether all succeeded. Also stops when an action waits for a block, a subagent or other agents.
    """
    done: list[Executed] = []
    chat = private_channels()
    with tempfile.TemporaryDirectory(prefix="weavegen-", dir="/tmp") as home:  # TMPDIR may be too long for sockets
        config = replace(config, home=Path(home))
        with watching(private(config.runtime)):
            given: dict[str, Any] = {"params": params, "packages": packages, "files": files}
            environment = Environment.start(config, 0, network=network, limits=limits, temporary=True, **given)
            try:
                for number, op in enumerate(ops, 1):
                    text = asked(protected(config, source)) if op == "evaluate" else source
                    limited = environment.limits.of(op)
                    executed = environment.execute(number, Execute(op=op, source=text), limits=limited, chat=chat)
                    if op == "evaluate" and text:
                        grader = Grader(config, 0, environment.limits, source, **given)
                        executed = grader.grade(environment.handle, executed)
                    done.append(executed)
                    if executed.error or executed.waits_for is not None or executed.writes or executed.delegates:
                        break
            finally:
                environment.stop()
    return done


def socket_path(config: Config, trace_id: int) -> Path:
    return private(config.runtime) / f"env-{trace_id}.sock"


def running(config: Config) -> list[Environment]:
    """Return all environments that live on this host."""
    numbers = [path.stem.removeprefix("env-") for path in private(config.runtime).glob("env-*.json")]
    return [found for number in numbers if number.isdecimal() and (found := Environment.find(config, int(number)))]


def find_files(config: Config) -> dict[int, list[str]]:
    """Sockets, logs and workspaces on this host, by trace."""
    by_trace: defaultdict[int, list[str]] = defaultdict(list)
    for folder, prefix in ((config.runtime, "env-"), (config.logs, "environment-"), (config.workspaces, "")):
        # Not Path.glob: each worker looks every few seconds, and a thousand traces have five thousand files.
        for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
            number = os.path.splitext(name)[0].removeprefix(prefix)
            if name.startswith(prefix) and number.isdecimal():
                by_trace[int(number)].append(f"{folder}/{name}")
    return dict(by_trace)


def remove(config: Config, trace_id: int) -> None:
    """Stop a trace's environment, if it still lives, and delete all its files on this host."""
    path = socket_path(config, trace_id)
    with locked(path.parent, trace_id):
        if environment := Environment.find(config, trace_id):
            end(environment.handle)
        if state := BoxState.read(path.with_suffix(".json")):
            groups.remove(state.handle.groups)
        for leftover in (path, path.with_suffix(".json"), path.with_suffix(".why"), log_path(config, trace_id)):
            leftover.unlink(missing_ok=True)
        image_root.remove(config.workspaces / str(trace_id))
        shutil.rmtree(config.workspaces / str(trace_id), ignore_errors=True)


def log_path(config: Config, trace_id: int) -> Path:
    return config.logs / f"environment-{trace_id}.log"


def last_kill_reason(config: Config, trace_id: int) -> str | None:
    """Return why the trace's last environment was killed, if it exceeded a limit."""
    path = socket_path(config, trace_id)
    return kill_reason(path, BoxState.read(path.with_suffix(".json")))


def locked(runtime: Path, trace_id: int) -> contextlib.AbstractContextManager[None]:
    """Let one process of the host at a time start, stop or remove the trace's environment.

    The lock is not in the workspace, which is removed and made again. Traces share a limited number of lock files.
    """
    return folders.locked(runtime / f"trace-{trace_id % LOCK_FILES}.lock")
