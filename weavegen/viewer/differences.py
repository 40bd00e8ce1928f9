"""Differences of a candidate from the block: by lines, and by words within similar lines. Pure."""

import re
from dataclasses import dataclass
from difflib import SequenceMatcher

MAX_COMPARED_CHARS = 20_000
"""Compared characters of each text. The rest is not compared."""
MAX_COMPARED_WORDS = 3_000
"""Words, spaces and punctuation marks that are compared in changed lines. With more, whole lines are shown."""
MIN_SHARED = 0.5
"""Share of common characters from which changed lines are compared by words. With less, the words of both texts
would alternate and be hard to read."""

_WORD = re.compile(r"\w+|[^\S\n]+|[^\w\s]|\n")
_WORD_OR_LINE_END = re.compile(r"[\w\n]")


Change = tuple[str, str]
"""A stretch of the block and the candidate's text in its place; equal if nothing changed. One may be empty."""


@dataclass(frozen=True)
class Difference:
    """A candidate's text compared with the block's."""

    changes: list[Change]
    """In order. The first texts together are the block's, the second ones the candidate's."""
    shared: float
    """Share of the characters that both texts have: 1 if they are equal."""
    uncompared: int
    """Characters of the longer text that were not compared."""


def difference(block: str, candidate: str, *, unfinished: bool = False) -> Difference:
    """Compare two texts. `unfinished`: the candidate is half-written; the block is compared up to its length."""
    if unfinished:
        block = block[: len(candidate)]
    changes = _joined(_by_lines(block[:MAX_COMPARED_CHARS], candidate[:MAX_COMPARED_CHARS]))
    return Difference(changes, _shared(changes), max(0, max(len(block), len(candidate)) - MAX_COMPARED_CHARS))


def _shared(changes: list[Change]) -> float:
    size = sum(len(before) + len(after) for before, after in changes)
    return sum(2 * len(before) for before, after in changes if before == after) / size if size else 1.0


def _by_lines(block: str, candidate: str) -> list[Change]:
    changes = []
    for before, after in _changes(block.splitlines(keepends=True), candidate.splitlines(keepends=True)):
        changes += [(before, after)] if before == after else _by_words(before, after)
    return changes


def _by_words(block: str, candidate: str) -> list[Change]:
    old, new = _WORD.findall(block), _WORD.findall(candidate)
    if old and new and max(len(old), len(new)) <= MAX_COMPARED_WORDS:
        changes = _changes(old, new)
        if _shared(changes) >= MIN_SHARED:
            return changes
    return [(block, candidate)]


def _changes(old: list[str], new: list[str]) -> list[Change]:
    codes = SequenceMatcher(None, old, new).get_opcodes()
    return [("".join(old[a:b]), "".join(new[c:d])) for _, a, b, c, d in codes]


def _joined(changes: list[Change]) -> list[Change]:
    """The changes joined: spaces and punctuation between two changes of a line become part of one change."""
    joined: list[Change] = []
    for at, (before, after) in enumerate(changes):
        same = before == after
        between = 0 < at < len(changes) - 1 and changes[at + 1][0] != changes[at + 1][1]
        gap = same and between and not _WORD_OR_LINE_END.search(before)
        if joined and (joined[-1][0] == joined[-1][1]) == (same and not gap):
            joined[-1] = (joined[-1][0] + before, joined[-1][1] + after)
        else:
            joined.append((before, after))
    return joined
