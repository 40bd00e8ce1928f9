"""A trace in a terminal: in colours, through the user's pager, as it is read."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import IO

from pygments import highlight
from pygments.formatters.terminal import TerminalFormatter
from pygments.lexers.python import PythonLexer

from weavegen.monitoring.display import harmless

PAGER = "less"
LESS = "FRX"
"""Its options where LESS is not set: what fits the window is just printed, colours are shown."""
COLOURED = 100_000
"""Characters of a block up to which it is coloured: half a second's work."""


def page(texts: Iterable[str]) -> None:
    """Show Python source, in pieces that are legal by themselves. What nobody wants to see is not read."""
    coloured = "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    with output() as out, contextlib.suppress(BrokenPipeError):
        for text in texts:
            out.write(colours(harmless(text)) if coloured else harmless(text))


def colours(text: str) -> str:
    """Python source with the terminal's own colours."""
    if len(text) > COLOURED:
        return text
    found: str = highlight(text, PythonLexer(stripnl=False, ensurenl=False), TerminalFormatter(bg="dark"))
    return found


@contextlib.contextmanager
def output() -> Iterator[IO[str]]:
    """What goes to the pager, or to the terminal where there is none. Ctrl-C is the pager's meanwhile."""
    command = os.environ.get("PAGER", "").strip() or PAGER
    with contextlib.suppress(ValueError):
        command = command if shutil.which(shlex.split(command)[0]) else ""
    if not command:
        yield sys.stdout
        return
    environ = {"LESS": LESS, "LESSCHARSET": "utf-8"} | os.environ
    pager = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, encoding="utf-8", env=environ)
    assert pager.stdin is not None
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield pager.stdin
    finally:
        with contextlib.suppress(BrokenPipeError):
            pager.stdin.close()
        pager.wait()
        signal.signal(signal.SIGINT, before)
