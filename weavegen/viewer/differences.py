"""What a candidate says otherwise than the block: by lines first, and by words where lines resemble each other."""

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

COMPARED = 20_000
"""Characters of each text that are compared."""
WORDS = 3_000
"""Words, spaces and signs of changed lines that are compared one by one; of more, whole lines are shown."""
ALIKE = 0.5
"""Share of characters that changed lines must have in common to be shown by words: with less, words of the two
sides would stand in turns, and neither could be read."""

_WORD = re.compile(r"\w+|[^\S\n]+|[^\w\s]|\n")
_SAYS = re.compile(r"[\w\n]")


@dataclass(frozen=True)
class Part:
    """A stretch of text."""

    kind: Literal["same", "block", "candidate"]
    """Who has it: both, the block alone, the candidate alone."""
    text: str


@dataclass(frozen=True)
class Difference:
    """A candidate's text beside the block's."""

    parts: list[Part]
    """In order. Without those of one side, they are the other side's text."""
    alike: float
    """Share of the characters that both have: 1 where nothing differs."""
    left: int
    """Characters of the longer text that were not compared."""


def difference(block: str, candidate: str, *, unfinished: bool = False) -> Difference:
    """Compare two texts. `unfinished`: the candidate just stops, so that what the block says further on is no
    difference."""
    if unfinished:
        block = block[: len(candidate)]
    changes = _joined(_by_lines(block[:COMPARED], candidate[:COMPARED]))
    parts: list[Part] = []
    for before, after in changes:
        if before == after:
            parts.append(Part("same", before))
        else:
            parts += [Part("block", before)] if before else []
            parts += [Part("candidate", after)] if after else []
    return Difference(parts, _alike(changes), max(0, max(len(block), len(candidate)) - COMPARED))


Change = tuple[str, str]
"""A stretch of the block, and what the candidate has there; the same where nothing differs."""


def _alike(changes: list[Change]) -> float:
    size = sum(len(before) + len(after) for before, after in changes)
    return sum(2 * len(before) for before, after in changes if before == after) / size if size else 1.0


def _by_lines(block: str, candidate: str) -> list[Change]:
    found = []
    for before, after in _changes(block.splitlines(keepends=True), candidate.splitlines(keepends=True)):
        found += [(before, after)] if before == after else _by_words(before, after)
    return found


def _by_words(block: str, candidate: str) -> list[Change]:
    old, new = _WORD.findall(block), _WORD.findall(candidate)
    if old and new and max(len(old), len(new)) <= WORDS:
        found = _changes(old, new)
        if _alike(found) >= ALIKE:
            return found
    return [(block, candidate)]


def _changes(old: list[str], new: list[str]) -> list[Change]:
    codes = SequenceMatcher(None, old, new).get_opcodes()
    return [("".join(old[a:b]), "".join(new[c:d])) for _, a, b, c, d in codes]


def _joined(changes: list[Change]) -> list[Change]:
    """The same in fewer pieces: spaces and punctuation between two changes of a line are changed with them."""
    found: list[Change] = []
    for at, (before, after) in enumerate(changes):
        same = before == after
        between = 0 < at < len(changes) - 1 and changes[at + 1][0] != changes[at + 1][1]
        gap = same and between and not _SAYS.search(before)
        if found and (found[-1][0] == found[-1][1]) == (same and not gap):
            found[-1] = (found[-1][0] + before, found[-1][1] + after)
        else:
            found.append((before, after))
    return found
