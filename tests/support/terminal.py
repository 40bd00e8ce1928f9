"""A terminal of a given size, in which commands run as people run them."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.installation import Installation

STYLE = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]")
"""Colours, and the cursor hidden or shown."""
MOVE = re.compile(r"\x1b\[(\d*)A|(\x1b\[2K)|(\r)|(\n)|([^\x1b\r\n]+|\x1b)")


class Terminal:
    """One command in a pseudo-terminal of its own, which is its controlling terminal."""

    def __init__(
        self, installation: Installation, *words: str | Path, columns: int = 100, lines: int = 30, **environ: str
    ) -> None:
        self.master, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.written = ""
        self.process = subprocess.Popen(
            [Path(sys.executable).parent / "weavegen", *map(str, words)],
            env=installation.environ | {"TERM": "xterm-256color"} | environ,
            cwd=installation.home,
            stdin=child,
            stdout=child,
            stderr=child,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        )
        os.close(child)

    def read(self, enough: Callable[[str], bool] = lambda _: False, seconds: float = 120) -> str:
        """The output so far, as soon as `enough` returns true for it or the command has ended."""
        deadline = time.monotonic() + seconds
        while not enough(self.written):
            assert time.monotonic() < deadline, self.written
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.written += os.read(self.master, 65_536).decode(errors="replace")
                except OSError:  # EIO: no process has the other end open
                    break
        return self.written

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def end(self) -> int:
        """Wait for the command. Returns its exit code."""
        self.read()
        os.close(self.master)
        return self.process.wait()


def screen(written: str) -> list[str]:
    """The visible lines of output that uses only the sequences `move up` and `erase line`."""
    lines, row = [""], 0
    for up, erase, start, down, text in MOVE.findall(STYLE.sub("", written)):
        assert text != "\x1b", written
        if up or (not erase and not start and not down and not text):
            row = max(0, row - int(up or 1))
        elif erase:
            lines[row] = ""
        elif down:
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif text:
            lines[row] += text
    return lines
