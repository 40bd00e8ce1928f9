"""Runs programs that need a terminal, in panes of a tmux server of this process."""

import itertools
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .window import Window

if TYPE_CHECKING:
    from weavegen.box.api import Subagent

WIDTH, HEIGHT = 80, 24
START_SECONDS = 5.0
"""Time within which a program must show something."""
START_ATTEMPTS = 3
"""tmux 3.3 loses what a program writes straight before it ends, about once in 25 times on a busy machine."""
MAX_SETTLE_SECONDS = 2.0
"""Time to wait for a screen that keeps changing."""
QUIET_SECONDS = 0.06
"""The screen is complete after this time without a change."""
FIRST_CHANGE_SECONDS = 0.2
"""Time to wait for the first change."""

PLACES = ":/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"
NAMED = (
    "Up|Down|Left|Right|BSpace|BTab|DC|End|Enter|Escape|F[1-9]|F1[0-2]|Home|IC|NPage|PageDown|PgDn|PPage|PageUp"
    "|PgUp|Space|Tab"
)
KEY = re.compile(rf"(?:[CMS]-)*(?:{NAMED})|(?:[CMS]-)+[!-~]|\^[A-Za-z@\[\]\\_]")
"""Names of keys in tmux(1)."""
DEAD = re.compile(r"^Pane is dead.*$", re.MULTILINE)
EXITING = re.compile("server exited|lost server|no server running")
"""Errors of tmux(1) while its server exits."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

numbers = itertools.count(1)


class Screen(list[str]):
    """The lines of a screen. `text in screen` is true if any line has the text in it."""

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and any(text in line for line in self)


@dataclass(frozen=True)
class ScreenState:
    """The state of a pane at one moment."""

    alive: bool
    """Whether the program is still running."""
    row: int
    """Row of the cursor, from 1."""
    column: int
    """Column of the cursor, from 1."""
    text: str
    pid: int = 0
    """Process id of the program."""


class Pane:
    """A program on a screen of 80 columns and 24 rows."""

    def __init__(self, name: str, command: list[str]):
        """Start `command` and wait until it shows something. Raises RuntimeError if it ends before."""
        self.name = name
        options = [("status", "off"), ("remain-on-exit", "on"), ("history-limit", "50"), ("escape-time", "0")]
        script: list[str] = ["start-server"]
        for option, value in options:
            script += [";", "set-option", "-g", option, value]
        size = ("-x", str(WIDTH), "-y", str(HEIGHT))
        for _ in range(START_ATTEMPTS):
            self.session = f"weave-{os.getpid()}-{next(numbers)}"
            start(*script, ";", "new-session", "-d", "-s", self.session, *size, "--", *command)
            look = self.settle(ScreenState(True, 1, 1, ""), max_seconds=START_SECONDS, change=START_SECONDS)
            if look.alive:
                return
            self.kill()
            if look.text:
                break
        raise RuntimeError(f"{name} ended as soon as it was started. {' '.join(look.text.split())}".strip())

    @property
    def target(self) -> str:
        return f"={self.session}:"

    def look(self) -> ScreenState:
        """Return what the screen shows now. A pane that no longer exists shows nothing."""
        state = ("display-message", "-p", "-t", self.target, "#{pane_dead} #{cursor_y} #{cursor_x} #{pane_pid}")
        first, _, screen = tmux(*state, ";", "capture-pane", "-p", "-t", self.target, check=False).partition("\n")
        dead, row, column, pid = first.split() if first.strip() else ("1", "0", "0", "0")
        if dead == "1":  # tmux has scrolled the screen to add a message
            screen = tmux("capture-pane", "-p", "-S", "-", "-t", self.target, check=False)
        text = "\n".join(line.rstrip() for line in DEAD.sub("", screen).split("\n")).rstrip()
        text = "\n".join(text.split("\n")[-HEIGHT:])
        return ScreenState(dead == "0", int(row) + 1, int(column) + 1, text, int(pid))

    def capture_pane(self, *place: Any, **options: Any) -> Screen:
        """Return the lines of the screen, as libtmux does. The arguments are ignored."""
        return Screen(self.look().text.split("\n"))

    def capture_colours(self) -> str:
        """Return the lines of the screen with the sequences that set colours (ECMA-48)."""
        return tmux("capture-pane", "-e", "-p", "-t", self.target, check=False)

    def send_keys(self, keys: str, enter: bool = True, **options: Any) -> None:
        """Type, and press Enter unless told not to, as libtmux does."""
        self.type(keys)
        if enter:
            self.type("Enter")

    def type(self, keys: str) -> None:
        """Press the key that `keys` names, or else type it as text, and wait for the answer."""
        if not isinstance(keys, str):
            raise TypeError(f"keys are a string, such as 'hello' or 'C-x', not {keys!r}")
        before = self.look()
        if not before.alive:
            raise RuntimeError(f"{self.name} has ended: close this tool, and open it again if it is needed")
        if KEY.fullmatch(keys):
            tmux("send-keys", "-t", self.target, "--", keys)
        else:
            self.type_text(keys)
        self.settle(before)

    def type_text(self, text: str) -> None:
        if control := CONTROL.search(text.replace("\r", "\n").replace("\x1b", "\n")):
            raise ValueError(f"{control.group()!r} can't be typed: name the key, as in 'C-x'")
        for part in re.split(r"(\r\n|[\r\n\t\x1b])", text):
            if key := {"\r\n": "Enter", "\n": "Enter", "\r": "Enter", "\t": "Tab", "\x1b": "Escape"}.get(part):
                tmux("send-keys", "-t", self.target, key)
                continue
            for start in range(0, len(part), 1000):
                piece = part[start : start + 1000]
                if piece.endswith(";"):  # tmux would end its command there
                    piece = piece[:-1] + "\\;"
                tmux("send-keys", "-t", self.target, "-l", "--", piece)

    def settle(
        self, before: ScreenState, max_seconds: float = MAX_SETTLE_SECONDS, change: float = FIRST_CHANGE_SECONDS
    ) -> ScreenState:
        """Wait until the screen has changed and then stayed the same for a moment. Returns its state.

        While the program computes, the wait goes on: on a busy machine it may take long to show anything.
        """
        began = since = time.monotonic()
        look, changed = before, False
        while (now := time.monotonic()) - began < max_seconds:
            if (new := self.look()) != look:
                look, since, changed = new, now, True
            elif look.alive and computes(look.pid):
                since = now
            elif now - since > (QUIET_SECONDS if changed else change):
                break
            time.sleep(0.015)
        return look

    def kill(self) -> None:
        tmux("kill-session", "-t", f"={self.session}", check=False)


class Terminal(Window):
    """A tool whose view is the screen of a program."""

    programs: tuple[str, ...]
    """Possible names of the program, the best first."""
    package: str
    """The package to install on the host if the program is missing."""
    help = ""
    """What the view says about the program's keys."""

    def __init__(
        self,
        agent: "Subagent",
        title: str,
        *keys: str,
        arguments: Iterable[str] = (),
        environ: Mapping[str, str] = MappingProxyType({}),
    ):
        command = [program(self.programs, self.package), *arguments]
        if environ:
            command = ["/usr/bin/env", *(f"{name}={value}" for name, value in environ.items()), *command]
        program(("tmux",), "tmux")
        super().__init__(agent, title, *keys)
        try:
            self.pane = Pane(keys[-1], command)
        except BaseException:
            super().close()
            raise

    def send_keys(self, command: str) -> None:
        """Press one key, named as tmux does ("Enter", "C-x", "M-f", "BSpace", "Up"), or type a text.

        Nothing is added: the key Enter must be sent itself. Returns when the screen has stopped changing.
        """
        self.check_open()
        self.pane.type(command)

    def send_command(self, command: str) -> None:
        """The same as send_keys."""
        self.send_keys(command)

    def send_commands(self, commands: Iterable[str]) -> None:
        """Send one after the other."""
        for command in [commands] if isinstance(commands, str) else commands:
            self.send_keys(command)

    def get_screen_text(self) -> str:
        """What the view shows."""
        return self.render()

    def render(self, agent: "Subagent | None" = None) -> str:
        """The screen, and where the cursor is."""
        self.check_open()
        look = self.pane.look()
        state = "the program has ended; this was its last screen"
        if look.alive:
            state = f"{WIDTH}x{HEIGHT}, the cursor is in row {look.row}, column {look.column}"
        return f"{self.title}: {state}\n{look.text}" + (f"\n{self.help}" if self.help else "")

    def close(self, agent: "Subagent | None" = None) -> None:
        """End the program, without saving, and close this tool and its view."""
        if self.is_open:
            self.pane.kill()
        super().close()


def program(names: tuple[str, ...], package: str) -> str:
    """Return the path of a program. Raises FileNotFoundError, with the package to install."""
    path = os.environ.get("PATH", "") + PLACES
    for name in names:
        if file := shutil.which(name, path=path):
            return file
    raise FileNotFoundError(f"{names[0]} is not installed: install the package {package} on the host")


def computes(pid: int) -> bool:
    """Whether a process runs or waits for a processor, and not for input."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "RD"
    except OSError:
        return False


def start(*arguments: str) -> None:
    """Run a tmux command that starts the server. If an earlier server has just lost its last session, try again.

    Such a server exits only after it has accepted the command, which then fails.
    """
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            tmux(*arguments)
            return
        except RuntimeError as error:
            if not EXITING.search(str(error)) or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def tmux(*arguments: str, check: bool = True) -> str:
    """Run a tmux command on this process's server, which ends with its last session."""
    # Without configuration files, and with a socket of its own, because /tmp may be shared.
    socket = os.path.join(tempfile.gettempdir(), f"weave-tmux-{os.getpid()}-{os.getuid()}")
    command = ["tmux", "-u", "-S", socket, "-f", os.devnull, *arguments]
    environ = {key: value for key, value in os.environ.items() if key not in ("TMUX", "TMUX_PANE")}
    done = subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=START_SECONDS, check=False
    )
    if check and done.returncode != 0:
        raise RuntimeError(f"tmux: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode(errors="replace")


def file_to_edit(path: str) -> str:
    """Return the absolute path. Raises OSError if no file can have this path."""
    path = os.path.abspath(path)
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path} is a folder: this edits files")
    if not os.path.isdir(os.path.dirname(path)):
        raise FileNotFoundError(f"there is no folder {os.path.dirname(path)}: make it first")
    return path
