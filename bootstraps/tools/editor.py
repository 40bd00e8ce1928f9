"""A text editor of one file, for line-wise work. Every change is written to the file at once."""

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import diff
from .window import Window

if TYPE_CHECKING:
    from weavegen.box.api import Subagent

WINDOW = 40
"""Lines shown at once, unless `window_size` says otherwise."""
MAX_WINDOW = 1_000
WIDTH = 400
"""Characters shown of a line."""
MAX_FILE_BYTES = 8 * 2**20


class WeaveEditor(Window):
    """Edits a text file: `editor = WeaveEditor(self, "story.txt")`, later `self.tools["editor-/app/story.txt"]`.

    Lines are numbered from 1. The view shows `window_size` lines around the cursor. A file that does not exist is
    empty, and made by the first change or by `save_file()`.
    """

    def __init__(self, agent: "Subagent", filepath: str):
        self.window = WINDOW
        self.show_file(agent, filepath)

    def show_file(self, agent: "Subagent", path: str) -> None:
        path = os.path.abspath(path)
        self.read(path)
        if hasattr(self, "agent"):
            self.close()
        self.path = self.filepath = path
        self.cursor = 1
        super().__init__(agent, f"WeaveEditor ({path})", f"editor-{path}")

    # ---- the file and the view

    def open(self, path: str) -> None:
        """Show another file in this window, from its first line. The key in `self.tools` is then the new file's."""
        self.show_file(self.agent, path)

    def save_file(self, path: str | None = None) -> None:
        """Make the file if it does not exist. Every change is saved at once, so there is nothing else to save.

        With a `path`, the lines are written to that file, too; this window stays on its own.
        """
        self.check_open()
        lines, path = self.read(), os.path.abspath(path or self.path)
        if path != self.path or not os.path.exists(path):
            self.write(lines, path)

    @property
    def window_size(self) -> int:
        """How many lines the view shows; set it to see more or fewer."""
        return self.window

    @window_size.setter
    def window_size(self, lines: int) -> None:
        if type(lines) is not int or not 1 <= lines <= MAX_WINDOW:
            raise ValueError(f"a window has 1 to {MAX_WINDOW:,} lines, not {lines!r}")
        self.window = lines

    # ---- changes

    def edit(self, start_line: int, end_line: int, new_text: str) -> None:
        """Put `new_text` in the place of lines `start_line` to `end_line`, both included; "" deletes them.

        edit(3, 3, "one\\ntwo") puts two lines in the place of line 3; edit(3, 2, text) inserts before line 3.
        """
        lines = self.read()
        for name, value in (("start_line", start_line), ("end_line", end_line)):
            if type(value) is not int:
                raise TypeError(f"{name} is a line number, not {value!r}")
        most = max(len(lines), 1)
        if not 1 <= start_line <= most + 1 or not start_line - 1 <= end_line <= most:
            raise ValueError(f"there are no lines {start_line} to {end_line}: {self.path} has {size(lines)}")
        if not lines:
            self.newline_at_end = new_text.endswith("\n")
        lines[start_line - 1 : end_line] = as_lines(self.own(new_text))
        self.cursor = start_line
        self.write(lines)

    def append(self, text: str) -> None:
        """Add `text` after the last line. It always begins on a line of its own."""
        lines = self.read()
        text = self.own(text)
        if text:
            lines += as_lines(text)
            self.newline_at_end = text.endswith("\n")
        self.cursor = len(lines)
        self.write(lines)

    def unidiff_edit(self, diff_text: str | Iterable[str]) -> None:
        """Apply a unified diff of this file (a string, or its lines). All of it is applied, or nothing.

        Its unchanged and removed lines must be in the file; the line numbers in its headers may be wrong.
        """
        if not isinstance(diff_text, str):
            diff_text = "".join(part if part.endswith("\n") else part + "\n" for part in diff_text)
        lines, first, newline = diff.apply(self.own(diff_text).removesuffix("\n"), self.read())
        if newline is not None:
            self.newline_at_end = newline
        self.cursor = first + 1
        self.write(lines)

    def clear(self) -> None:
        """Delete all lines."""
        self.read()
        self.cursor = 1
        self.newline_at_end = True
        self.write([])

    # ---- moving about

    def up(self, n: int | None = None) -> None:
        """Move the cursor up `n` lines; by default a window."""
        self.goto(max(self.cursor - (self.window if n is None else n), 1))

    def down(self, n: int | None = None) -> None:
        """Move the cursor down `n` lines; by default a window."""
        self.goto(min(self.cursor + (self.window if n is None else n), max(len(self.read()), 1)))

    def goto(self, line: int) -> None:
        """Move the cursor to a line."""
        self.check_open()
        lines = self.read()
        if type(line) is not int or not 1 <= line <= max(len(lines), 1):
            raise ValueError(f"there is no line {line}: {self.path} has {size(lines)}")
        self.cursor = line

    def find(self, regex: str) -> int | None:
        """Move the cursor to the next line that has this text, or one that matches it as a regular expression.

        Goes on from the first line after the last. Gives the line's number; None if there is no such line.
        """
        self.check_open()
        lines = self.read()
        order = [*range(self.cursor, len(lines)), *range(min(self.cursor, len(lines)))]
        found = next((at for at in order if regex in lines[at]), None)
        if found is None:
            with contextlib.suppress(re.error):
                found = next((at for at in order if re.search(regex, lines[at])), None)
        if found is None:
            return None
        self.cursor = found + 1
        return self.cursor

    def start(self) -> None:
        """Move the cursor to the first line."""
        self.goto(1)

    def end(self) -> None:
        """Move the cursor to the last line."""
        self.goto(max(len(self.read()), 1))

    def render(self, agent: "Subagent | None" = None) -> str:
        """The numbered lines around the cursor, which is the line with `>`."""
        lines = self.read()
        self.cursor = min(self.cursor, max(len(lines), 1))
        first = max(min(self.cursor - self.window // 2, len(lines) - self.window + 1), 1)
        last = min(first + self.window - 1, len(lines))
        name = self.path + ("" if os.path.exists(self.path) else " (not made yet)")
        what = f"{size(lines)}, {sum(map(len, lines)) + len(lines):,} characters" if lines else "empty"
        head = f"{name}: {what}" + (f"; lines {first} to {last} are shown" if len(lines) > self.window else "")
        width = len(str(last))
        shown = [
            f"{'>' if number == self.cursor else ' '}{number:>{width}} | {shorten(lines[number - 1])}".rstrip()
            for number in range(first, last + 1)
        ]
        return "\n".join([head, *shown])

    # ---- the file

    def read(self, path: str | None = None) -> list[str]:
        """Read the lines of the file, or of the one at another path."""
        path = self.path if path is None else path
        self.crlf, self.newline_at_end = False, True
        try:
            kind = os.stat(path).st_mode
        except FileNotFoundError:
            if not os.path.isdir(os.path.dirname(path)):
                raise FileNotFoundError(f"there is no folder {os.path.dirname(path)}: make it first") from None
            return []
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(f"{path} is a folder: this edits files")
        if not stat.S_ISREG(kind):
            raise ValueError(f"{path} is no ordinary file")
        if os.path.getsize(path) > MAX_FILE_BYTES:
            raise ValueError(f"{path} is larger than {MAX_FILE_BYTES // 2**20} MiB, too large for this editor")
        with open(path, "rb") as file:
            data = file.read()
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is no UTF-8 text: byte {error.start} is {data[error.start]:#04x}") from None
        self.crlf = "\r\n" in text and text.count("\r\n") == text.count("\n")
        self.newline_at_end = text.endswith("\n") or not text
        return as_lines(self.own(text))

    def write(self, lines: list[str], path: str | None = None) -> None:
        """Replace the file, or the one at another path, atomically."""
        self.check_open()
        path = os.path.realpath(path or self.path)
        folder = os.path.dirname(path)
        for what in (path, folder):
            if os.path.exists(what) and not os.access(what, os.W_OK):
                raise PermissionError(f"{what} may not be written to")
        newline = "\r\n" if self.crlf else "\n"
        # An empty last line needs a newline to exist.
        at_end = newline if lines and (self.newline_at_end or lines[-1] == "") else ""
        data = (newline.join(lines) + at_end).encode("utf-8", "backslashreplace")
        descriptor, temporary = tempfile.mkstemp(prefix=".weave-editor-", dir=folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
            os.chmod(temporary, stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else 0o644)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        self.cursor = max(min(self.cursor, len(lines)), 1)

    def own(self, text: str) -> str:
        """Return `text` with "\\n" as newline."""
        return text.replace("\r\n", "\n") if self.crlf else text


def as_lines(text: str) -> list[str]:
    """Split a text at "\\n" only. The last line may lack it."""
    return text.removesuffix("\n").split("\n") if text else []


def size(lines: list[str]) -> str:
    return f"{len(lines)} line{'' if len(lines) == 1 else 's'}"


def shorten(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[:WIDTH]}... ({len(line) - WIDTH} characters more)"
