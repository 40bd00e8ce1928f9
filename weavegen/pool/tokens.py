"""Prompts and their sampled continuations, as text and as token ids. Pure: no I/O."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weavegen.errors import TransientError


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids as JSON without the brackets, so that encoded pieces can be joined to a prompt.

    As Python ints, the contexts of a few hundred traces would fill gigabytes, and be encoded for each request.
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
        """Return the first `count` tokens."""
        return self if count >= self.count else Tokens.of(self.ids[: max(0, count)])


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of a prompt for a server that accepts text only, with its estimated number of tokens."""

    text: str
    count: int

    def first(self, count: int) -> "Text":
        """Return about the first `count` tokens."""
        return self if count >= self.count else Text(self.text[: len(self.text) * count // self.count], count)


class ListedToken(msgspec.Struct):
    """A token of `Logprobs.content`."""

    token: str
    logprob: float | None = None
    id: int | None = None
    top_logprobs: list["ListedToken"] | None = None


class Logprobs(msgspec.Struct):
    """The logprobs of a choice, in the form of completions. `content`: in that of the chat API, which llama.cpp's
    completions have, with token ids; the other fields are filled from it."""

    tokens: list[str] = msgspec.field(default_factory=list)
    token_logprobs: list[float | None] = msgspec.field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] | None = None
    content: list[ListedToken] | None = None

    def __post_init__(self) -> None:
        if self.content:
            self.tokens = [one.token if one.id is None else f"token_id:{one.id}" for one in self.content]
            self.token_logprobs = [one.logprob for one in self.content]
            tops = [one.top_logprobs or () for one in self.content]
            self.top_logprobs = [{one.token: one.logprob for one in top if one.logprob is not None} for top in tops]

    @classmethod
    def read(cls, value: Any) -> "Logprobs":
        """Convert what a server sent; empty if it has another form."""
        try:
            return msgspec.convert(value or {}, cls)
        except msgspec.ValidationError:
            return cls()

    @property
    def top(self) -> dict[str, float]:
        """The logprobs listed for the first sampled token, by text; empty if there are none."""
        return (self.top_logprobs or [None])[0] or {}


class Continuation(msgspec.Struct, frozen=True, kw_only=True):
    """One sampled continuation of a prompt, or message after a conversation."""

    text: str
    finish_reason: str
    """`stop`, `length`; of a chat also `content_filter`, or `refusal`: the text says what the model refuses."""
    token_ids: list[int] | None = None
    """Sampled tokens, with those of the stop string and after it; None if the server does not report them."""
    logprobs: list[float] | None = None
    """The model's logprob of each of `token_ids`."""
    tokens: int | None = None
    """Number of sampled tokens; None if the server tells neither it nor their ids."""


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request for continuations."""

    continuations: list[Continuation]
    prompt_tokens: int | None
    """As counted by the server; None if it does not report them."""
    cached_tokens: int | None
    """Prompt tokens from the prefix cache; None if not reported (vLLM: `--enable-prompt-tokens-details`)."""


def without_nul(text: str) -> str:
    """Replace NUL, which Postgres can't store, by U+FFFD, which decoders use for invalid bytes."""
    return text.replace("\x00", "\ufffd")


def joined(pieces: Sequence[Text | Tokens]) -> str | Tokens:
    """Join pieces to a prompt. Raises TransientError if only some are Tokens: the server was replaced meanwhile."""
    tokens = [piece for piece in pieces if isinstance(piece, Tokens)]
    if len(tokens) == len(pieces):
        filled = [piece for piece in tokens if piece.count]
        return Tokens(sum(piece.count for piece in filled), b",".join(piece.json for piece in filled))
    if tokens:
        raise TransientError("the server's /tokenize came or went while a prompt was made", kind="malformed")
    return "".join(piece.text for piece in pieces if isinstance(piece, Text))


def locate_message_end(
    ids: Sequence[int], text: str, close: str, decode: Callable[[Sequence[int]], str]
) -> tuple[int, str] | None:
    """Return how many of the sampled `ids` lie in `text + close` of a message, and the rest of that text.

    `ids` are the tokens of `text` and of what ended it: a special token, or a stop string and perhaps more text.
    None: the ids do not match the text, so it must be tokenised again.
    """
    whole = text + close
    for kept in range(len(ids), max(-1, len(ids) - 1 - MAX_TAIL_TOKENS), -1):
        decoded = decode(ids[:kept])
        if not whole.startswith(decoded) and whole.startswith(" " + decoded):  # decoders drop a leading space
            decoded = " " + decoded
        if whole.startswith(decoded):
            return kept, whole[len(decoded) :]
    return None


MAX_TAIL_TOKENS = 64
"""Tokens examined from the end: those of a stop string, and of line ends before it."""


def whole_tokens(
    ids: Sequence[int], text: str, stop: Sequence[str] | None, word: Callable[[int], str]
) -> tuple[int, str] | None:
    """Return how many of the sampled `ids` lie in `text` without its final line ends, and the rest of that text.

    `ids` are the tokens of `text` and of the stop string after it, which is one of `stop`; `stop` None: there is
    no stop string. A token that is partly beyond the text is not counted, and its part of the text belongs to the
    rest. `word` returns the text of a token. None: the ids do not match the text.
    """
    tail = ""
    for kept in range(len(ids) - 1, max(-1, len(ids) - 1 - MAX_TAIL_TOKENS), -1):
        first = word(ids[kept])
        tail = first + tail
        ends = [len(tail)] if stop is None else [at for end in stop if (at := tail.find(end)) >= 0]
        if not ends or not text.endswith(tail[: min(ends)]):
            continue
        before, over = text[: len(text) - min(ends)], tail[: min(ends)].rstrip("\n")
        if over == first:
            return kept + 1, ""
        if over or not before.endswith("\n"):  # vLLM omits an incomplete character before a stop string, not its token
            return (kept, over) if not kept or before.endswith(word(ids[kept - 1])) else None
    return None
