"""Applies unified diffs. The old lines of a hunk must be in the file, but its line numbers may be wrong."""

import re
from dataclasses import dataclass, field

HEADER = re.compile(r"@@+(?: -(\d+)(?:,(\d+))? \+\d+(?:,\d+)?)?(?: @@.*)?\s*$")


@dataclass
class Hunk:
    """A hunk of a diff. `rows` are (mark, text), where the mark is " ", "-" or "+"."""

    start: int | None
    """First line in the old file, 1-based; None if the header doesn't say."""
    count: int | None
    """Number of lines of the old file, by the header."""
    rows: list[tuple[str, str]] = field(default_factory=list)
    end: bool | None = None
    """Whether the new file's last line has a newline; None if the diff doesn't say."""

    @property
    def old(self) -> list[str]:
        return [text for mark, text in self.rows if mark != "+"]

    def drop_padding(self) -> None:
        """Remove empty rows at the end that belong to the string around the diff."""
        while self.rows and self.rows[-1] == (" ", "") and len(self.old) > (self.count or 0):
            self.rows.pop()


def parse(diff: str) -> list[Hunk]:
    """Parse the diff of one file. Raises ValueError."""
    rows, hunks = diff.split("\n"), list[Hunk]()
    for number, row in enumerate(rows):
        if row.startswith("@@"):
            if not (found := HEADER.match(row)):
                raise ValueError(f"diff line {number + 1} is no hunk header like '@@ -1,3 +1,4 @@': {row!r}")
            start, count = found.groups()
            hunks.append(Hunk(int(start), int(count or 1)) if start else Hunk(None, None))
        elif not hunks:
            if row and not row.startswith(("---", "+++", "diff ", "index ", "new file", "old mode", "new mode")):
                raise ValueError(f"diff line {number + 1} comes before any hunk header '@@ ... @@': {row!r}")
        elif (
            row.startswith("--- ")
            and "\n".join(rows[number + 1 : number + 3]).startswith("+++ ")
            and ("\n@@" in "\n".join(rows[number + 1 : number + 3]))
        ):
            raise ValueError("the diff is about more than one file: this editor has one")
        elif row.startswith("\\"):
            mark = hunks[-1].rows[-1][0] if hunks[-1].rows else " "
            hunks[-1].end = mark == "-"
        elif row[:1] in ("", " ", "-", "+"):
            hunks[-1].rows.append((row[:1] or " ", row[1:]))
        else:
            raise ValueError(f"diff line {number + 1} must begin with ' ', '-' or '+': {row!r}")
    if not hunks:
        raise ValueError("the diff has no hunk: one begins with a line like '@@ -1,3 +1,4 @@'")
    hunks[-1].drop_padding()
    return hunks


def apply(diff: str, lines: list[str]) -> tuple[list[str], int, bool | None]:
    """Apply a diff to the lines of a file.

    Returns the new lines, the index of the first change, and whether the last line has a newline (None: as before).
    Raises ValueError, with the line that differs, unless the old lines of every hunk are in the file, in order.
    """
    result: list[str] = []
    done = shift = 0  # lines of the file processed so far; error of the line numbers so far
    first: int | None = None
    end: bool | None = None
    for number, hunk in enumerate(parse(diff), 1):
        at = place(hunk, number, lines, done, shift)
        if hunk.start is not None:
            shift = at - index(hunk)
        result += lines[done:at]
        first = len(result) if first is None else first
        done = at
        for mark, text in hunk.rows:
            if mark == "+":
                result.append(text)
            else:
                if mark == " ":
                    result.append(lines[done])
                done += 1
        end = hunk.end if hunk.end is not None else end
    return result + lines[done:], first or 0, end


def index(hunk: Hunk) -> int:
    """Return the first line by the header, 0-based. A hunk that only inserts gives the line before it."""
    return (hunk.start or 0) - (1 if hunk.old else 0)


def place(hunk: Hunk, number: int, lines: list[str], done: int, shift: int) -> int:
    """Return the index of the hunk's old lines in the file: of several places the nearest to the expected one."""
    old, wanted = hunk.old, index(hunk) + shift
    if not old:
        if hunk.start is None or not done <= wanted <= len(lines):
            raise ValueError(f"hunk {number} only adds lines, and its header doesn't say where in the file")
        return wanted
    room = range(done, len(lines) - len(old) + 1)
    for same in (str, str.rstrip):  # without an exact match, blanks at line ends may differ
        seek = [same(text) for text in old]
        found = [at for at in room if same(lines[at]) == seek[0] and list(map(same, lines[at : at + len(old)])) == seek]
        if len(found) > 1 and hunk.start is None:
            raise ValueError(f"hunk {number} fits {len(found)} places: give its line number, '@@ -12,3 +12,4 @@'")
        if found:
            return min(found, key=lambda at: abs(at - wanted))
    raise ValueError(f"hunk {number} does not fit the file: {mismatch(old, lines, done, wanted)}")


def mismatch(old: list[str], lines: list[str], done: int, wanted: int) -> str:
    """Describe the first line that differs, at the place where most of the hunk's lines match."""

    def agreeing(at: int) -> int:
        return sum(a.rstrip() == b.rstrip() for a, b in zip(old, lines[at:], strict=False))

    at = max(range(done, len(lines) + 1), key=lambda at: (agreeing(at), -abs(at - wanted)))
    for offset, text in enumerate(old):
        if at + offset >= len(lines):
            return f"it wants {text!r} where the file has ended, after line {len(lines)}"
        if lines[at + offset].rstrip() != text.rstrip():
            return f"it wants {text!r}, but line {at + offset + 1} is {lines[at + offset]!r}"
    return "its lines come in another order"
