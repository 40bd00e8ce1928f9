"""Token ids on their way to a server and back. Pure: no I/O."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids as JSON without the brackets: prompts are put together of pieces that are encoded already.

    As Python ints the contexts of a few hundred traces would fill gigabytes, and be encoded again and again.
    """

    count: int
    json: bytes

    @classmethod
    def of(cls, ids: Sequence[int]) -> "Tokens":
        return cls(len(ids), msgspec.json.encode(list(ids))[1:-1])

    @property
    def ids(self) -> list[int]:
        return msgspec.json.decode(b"[%b]" % self.json, type=list[int])

    def first(self, count: int) -> "Tokens":
        """The first so many of them."""
        return self if count >= self.count else Tokens.of(self.ids[: max(0, count)])


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of a prompt for a server that takes text alone, and about how many tokens it is."""

    text: str
    count: int

    def first(self, count: int) -> "Text":
        """About the first so many tokens of it."""
        return self if count >= self.count else Text(self.text[: len(self.text) * count // self.count], count)


def joined(pieces: Sequence[Text | Tokens]) -> str | Tokens:
    """Pieces as one prompt: all of them are of one kind."""
    tokens = [piece for piece in pieces if isinstance(piece, Tokens)]
    if len(tokens) == len(pieces):
        filled = [piece for piece in tokens if piece.count]
        return Tokens(sum(piece.count for piece in filled), b",".join(piece.json for piece in filled))
    return "".join(piece.text for piece in pieces if isinstance(piece, Text))


def said(
    ids: Sequence[int], text: str, close: str, decode: Callable[[Sequence[int]], str]
) -> tuple[int, str] | None:
    """How many of the sampled `ids` lie in a message's `text` and `close`, and what of these is left over.

    `ids` are the tokens of `text` and of what ended it: a token of its own, or a stop string and a little more.
    None: the ids don't fit the text, so that it has to be tokenised anew.
    """
    whole = text + close
    for kept in range(len(ids), max(-1, len(ids) - 1 - LONGEST_TAIL), -1):
        decoded = decode(ids[:kept])
        if not whole.startswith(decoded) and whole.startswith(" " + decoded):  # decoders drop a leading space
            decoded = " " + decoded
        if whole.startswith(decoded):
            return kept, whole[len(decoded) :]
    return None


LONGEST_TAIL = 64
"""Tokens looked at from the end: those of a stop string, and of line ends before it."""


def whole_tokens(
    ids: Sequence[int], text: str, stop: Sequence[str] | None, word: Callable[[int], str]
) -> tuple[int, str] | None:
    """How many of the sampled `ids` lie in `text`, less the line ends that close it, and what text is left over.

    `ids` are the tokens of `text`, then those of the stop string that ended it, which is one of `stop` and not in
    `text`; None: nothing ended it. A token that reaches across the border is not counted: its part of the text is
    left over. `word` gives the text of one token. None: the ids don't fit the text.
    """
    tail = ""
    for kept in range(len(ids) - 1, max(-1, len(ids) - 1 - LONGEST_TAIL), -1):
        first = word(ids[kept])
        tail = first + tail
        ends = [len(tail)] if stop is None else [at for end in stop if (at := tail.find(end)) >= 0]
        if not ends or not text.endswith(tail[: min(ends)]):
            continue
        before, over = text[: len(text) - min(ends)], tail[: min(ends)].rstrip("\n")
        if over == first:
            return kept + 1, ""
        if over or not before.endswith("\n"):
            return kept, over
    return None
