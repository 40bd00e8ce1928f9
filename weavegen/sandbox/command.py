"""Runs commands in a box whose root is an image: one after another, or several at once, in the same box."""

import json
import os
import select
import socket
import tempfile
import time
from dataclasses import dataclass
from typing import IO, Any

from weavegen.config import Config
from weavegen.errors import EnvironmentFailure
from weavegen.sandbox import groups
from weavegen.sandbox.children import collect, tail
from weavegen.sandbox.image_root import Root
from weavegen.sandbox.providers import Box, Handle, Limits, provider, start_main
from weavegen.sandbox.watch import INTERVAL_SECONDS, BoxState, Watch, by_parent, members, memory_reason, process_table

SHOWN_CHARS = 8_000


class CommandBox:
    """A live box that runs commands. It ends with this process at the latest."""

    def __init__(self, config: Config, root: Root, limits: Limits, name: str, network: str = "none") -> None:
        """Start the box. `name`: of the folder for it. Raises EnvironmentFailure if there can be none."""
        self.sandbox, self.limits, self.root = provider(config.sandbox), limits, root
        root.prepare()
        workspace = config.workspaces / name
        workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.log = workspace / "log"
        self.log.unlink(missing_ok=True)
        self.control, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        box = Box(
            workspace,
            0,
            self.log,
            limits,
            (),
            descriptors=(inside.fileno(),),
            network=network,
            temporary=True,
            root=root,
        )
        with inside:
            self.handle: Handle = start_main(self.sandbox, "commands", {"control": inside.fileno()}, box)
        self.watch, self.state = Watch(workspace), BoxState(self.handle, limits, str(root.changes))

    def send(self, request: dict[str, Any], *files: IO[bytes] | int) -> socket.socket:
        """Begin a request (box/commands.py) with its standard input, output and error.

        Returns a socket on which the exit code arrives as one line; closing it kills the command. Raises
        EnvironmentFailure where the box has ended.
        """
        answer, inside = socket.socketpair()
        numbers = [file if isinstance(file, int) else file.fileno() for file in files]
        try:
            with inside:
                socket.send_fds(self.control, [b"."], [*numbers, inside.fileno()])
            answer.sendall(json.dumps(request).encode() + b"\n")
        except OSError:
            answer.close()
            raise EnvironmentFailure(f"the box has ended: {self.killed_for() or tail(self.log)}") from None
        return answer

    def killed_for(self) -> str:
        """The limit for which the kernel has killed a process of the box; empty: none."""
        return memory_reason(self.limits) if groups.killed_for_memory(self.handle.groups) else ""

    def exceeded(self) -> str:
        """Which limit the box exceeds that the kernel does not enforce; empty: none."""
        processes = process_table()
        own = members(self.handle, processes, by_parent(processes))
        return self.watch.exceeded_limit(self.log, self.state, own) or ""

    def kill(self) -> None:
        """End every process in the box. Its changes stay."""
        self.control.close()
        self.sandbox.kill(self.handle)


@dataclass(frozen=True)
class Ran:
    output: str
    """The end of what it printed."""
    ended: str
    """Why it did not end by itself; empty: it did."""
    seconds: float


def run(
    config: Config,
    root: Root,
    argv: list[str],
    *,
    user: str,
    seconds: float,
    limits: Limits,
    name: str,
    network: str = "none",
) -> Ran:
    """Run a command in a box of its own until it ends or its time is up; then everything in the box is dead.

    `name`: of the folder for the box. Raises EnvironmentFailure if there can be no box.
    """
    began = time.monotonic()
    box = CommandBox(config, root, limits, name, network)
    with tempfile.TemporaryFile(dir=config.workspaces / name) as output:
        try:
            request = {"argv": argv, "user": user, "cwd": root.workdir, "environ": {}}
            with open(os.devnull, "rb") as nothing, box.send(request, nothing, output, output) as answer:
                ended = wait(box, answer, seconds)
        finally:
            box.kill()
        output.seek(max(output.seek(0, os.SEEK_END) - 4 * SHOWN_CHARS, 0))
        text = output.read().decode(errors="replace")[-SHOWN_CHARS:]
    return Ran(text, ended, time.monotonic() - began)


def wait(box: CommandBox, answer: socket.socket, seconds: float) -> str:
    """Wait until the command has ended. Returns why it did not end by itself; empty: it did."""
    poll, deadline = select.poll(), time.monotonic() + seconds
    poll.register(answer, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        if poll.poll(1000 * min(left, INTERVAL_SECONDS)):
            return box.killed_for()
        if reason := box.exceeded():
            return reason
        collect()
    return f"its time of {seconds:.0f} seconds was up"
