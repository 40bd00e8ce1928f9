"""A trace in a terminal: coloured, through the user's pager, and read from the database as it is needed."""

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

from weavegen.text import harmless

PAGER = "less"
LESS = "FRX"
"""Default of the variable LESS: a text that fits the window is just printed, and colours are shown."""
MAX_COLOURED_CHARS = 100_000
"""Longer blocks get no colours: highlighting so many characters takes half a second."""


def page(texts: Iterable[str]) -> None:
    """Show pieces of Python source, each legal by itself. Pieces after the user has left are not read."""
    coloured = "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    with output() as out, contextlib.suppress(BrokenPipeError):
        for text in texts:
            out.write(colours(harmless(text)) if coloured else harmless(text))


def colours(text: str) -> str:
    """Python source with the terminal's own colours."""
    if len(text) > MAX_COLOURED_CHARS:
        return text
    coloured: str = highlight(text, PythonLexer(stripnl=False, ensurenl=False), TerminalFormatter(bg="dark"))
    return coloured


@contextlib.contextmanager
def output() -> Iterator[IO[str]]:
    """The pager's input, or standard output where there is no pager. Ctrl-C goes to the pager."""
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
