"""Runs commands in a box whose root is an image: one after another, or several at once, in the same box."""

import contextlib
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
from weavegen.folders import private
from weavegen.sandbox.children import tail
from weavegen.sandbox.image_root import Root
from weavegen.sandbox.providers import Box, Limits, provider, start_main
from weavegen.sandbox.stopping import end
from weavegen.sandbox.watch import BoxState, kill_reason, watching

SHOWN_CHARS = 8_000


class CommandBox:
    """A live box that runs commands. It ends with this process at the latest."""

    def __init__(self, config: Config, root: Root, limits: Limits, name: str, network: str = "none") -> None:
        """Start the box. `name`: name of its folder. Raises EnvironmentFailure if it can't start."""
        self.limits, self.root = limits, root
        root.prepare()
        workspace = private(config.workspaces / name)
        self._log, self._state = workspace / "log", workspace / "env-0.json"
        for old in (self._log, self._state.with_suffix(".why")):
            old.unlink(missing_ok=True)
        self._control, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with inside:
            given = (inside.fileno(),)
            box = Box(workspace, 0, self._log, limits, (), {}, {}, given, network=network, temporary=True, root=root)
            self.handle = start_main(provider(config.sandbox), "commands", {"control": inside.fileno()}, box)
        BoxState(self.handle, limits, str(root.changes)).write(self._state)
        self._watching = contextlib.ExitStack()
        self._watching.enter_context(watching(workspace))

    def send(self, request: dict[str, Any], *files: IO[bytes]) -> socket.socket:
        """Begin a request (box/commands.py) with its standard input, output and error.

        Returns a socket on which the exit code arrives as one line, or nothing if the box ends; closing it kills the
        command. Raises EnvironmentFailure if the box has ended.
        """
        answer, inside = socket.socketpair()
        try:
            with inside:
                socket.send_fds(self._control, [b"."], [*(file.fileno() for file in files), inside.fileno()])
            answer.sendall(json.dumps(request).encode() + b"\n")
        except OSError:
            answer.close()
            raise EnvironmentFailure(f"the box has ended: {self.killed_for() or tail(self._log)}") from None
        return answer

    def killed_for(self) -> str:
        """The limit for which the box or one of its processes was killed; empty if nothing was killed."""
        return kill_reason(self._state, BoxState(self.handle, self.limits)) or ""

    def kill(self) -> None:
        """End every process in the box. Its changes stay."""
        self.killed_for()  # the control groups know the limit only while they exist
        self._control.close()
        end(self.handle)
        self._watching.close()


@dataclass(frozen=True)
class Ran:
    output: str
    """The end of what it printed."""
    ended: str
    """Why it did not end by itself; empty if it did."""
    seconds: float


def run(
    config: Config, root: Root, argv: list[str], *, seconds: float, limits: Limits, name: str, network: str = "none"
) -> Ran:
    """Run a command, as the root's user, in a box of its own until it ends or its time is up; then kill the whole box.

    `name`: name of the box's folder. Raises EnvironmentFailure if the box can't start.
    """
    began, poll = time.monotonic(), select.poll()
    box = CommandBox(config, root, limits, name, network)
    with tempfile.TemporaryFile(dir=config.workspaces / name) as output:
        os.fchmod(output.fileno(), 0o666)  # scripts open /dev/stderr
        try:
            request = {"argv": argv, "user": root.user, "cwd": root.workdir, "environ": {}}
            with open(os.devnull, "rb") as nothing, box.send(request, nothing, output, output) as answer:
                poll.register(answer, select.POLLIN)
                ended = "" if poll.poll(1000 * seconds) else f"its time of {seconds:.0f} seconds was up"
        finally:
            box.kill()
        output.seek(max(output.seek(0, os.SEEK_END) - 4 * SHOWN_CHARS, 0))
        text = output.read().decode(errors="replace").replace("\0", "\ufffd")[-SHOWN_CHARS:]  # no NUL in the database
    return Ran(text, box.killed_for() or ended, time.monotonic() - began)
