"""What the model reads in a step: prompts put together of pieces that this process has met before."""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from weavegen import sql
from weavegen.database import Connection
from weavegen.errors import ModelError
from weavegen.kernel import context, prompts
from weavegen.kernel.context import PINNED
from weavegen.kernel.steps import Prompt
from weavegen.kernel.template import Template
from weavegen.pool.chat_messages import Said
from weavegen.pool.client import DEFAULT_CHARS_PER_TOKEN, ModelClient
from weavegen.pool.conversation import Piece, message
from weavegen.pool.tokens import Text, Tokens, joined, whole_tokens
from weavegen.store import blocks
from weavegen.store.session import single
from weavegen.store.steps import Claimed
from weavegen.store.traces import TraceSpec
from weavegen.trace.blocks import MESSAGE, BlockType

KEPT_SECONDS = 600.0  # of 1,000 active traces, each of seven workers meets every one within two minutes
TRACES_KEPT = 2048  # a worker meets all active traces of the installation, whose number may be over a thousand
QUESTION = 256  # tokens kept free for a question, besides its calibration examples


@dataclass(frozen=True)
class Read:
    """What the model reads before the body of a block, and what is recorded about it."""

    prompt: str | Tokens
    first_block: int
    """Index of the oldest block in it, besides the pinned ones."""
    cut: dict[str, Any] | None = None
    """What was left out for lack of room; None: nothing."""
    asking: Tokens | None = None
    """The part that no block holds: what was retrieved, the instruction, the header, the body's fixed prefix."""
    unstored: dict[int, Piece] = field(default_factory=dict)
    """Its blocks whose tokens this process has not stored yet, by index."""
    count: int = 0
    """Tokens of a conversation; an estimate where the server can't tokenise."""
    model: str | None = None
    """The model that reads it."""
    length: int | None = None
    """Tokens that a conversation may take in all, with what the model says next; None: the server does not say."""
    most: int | None = None
    """Tokens that it may take with a continuation, so that a block leaves room for questions; None: not known."""

    def stored(self) -> None:
        """Mark the blocks in `unstored` as stored, once they are committed."""
        for piece in self.unstored.values():
            piece.stored = True


class Context:
    """Caches the rendered blocks, and their tokens, of the traces that this process has met lately.

    Each block is tokenised by itself, so a prompt's tokens extend those of the previous prompt, whatever text follows.
    A block never changes, unless a tick is started over.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[float, tuple[int, ...], dict[int, Piece]]] = OrderedDict()
        """By trace: when it was met last, how many of its ticks had been started over and the tokenizer, and its blocks
        by index."""
        self._lock = threading.Lock()

    def read(self, claim: Claimed, prompt: Prompt, spec: TraceSpec, template: Template, client: ModelClient) -> Read:
        """The prompt of a step, in the tokens of `client`'s model, cut to what it can take."""
        if prompt.type in MESSAGE:
            return self._conversation(claim, prompt, spec, template, client)
        first, end = prompt.window
        kept = self._pieces(claim, client.tokenizer, first, PINNED)
        indexes = [*range(min(PINNED, end)), *range(first, end)]
        with single().connect() as conn:
            self._fetch(conn, claim.trace_id, kept, 0, min(PINNED, end))
            self._fetch(conn, claim.trace_id, kept, first, end)
            recalled = blocks.retrieved_texts(conn, prompt.recalled)
        parts: list[Text | Tokens] = []
        for index in indexes:
            piece = kept[index]
            part: Text | Tokens | None = piece.tokens
            if part is None:
                text = (template.block_open if index == 0 else "") + context.unmarked(piece.text, template)
                part = client.piece(text, bos=index == 0 and template.bos)
                piece.tokens = part if isinstance(part, Tokens) else None
            parts.append(part)

        length, questions = length_of(spec, client), client.piece(prompts.calibration()).count + QUESTION
        reserve = spec.settings.of(prompt.type).max_tokens + questions
        room = None if length is None else max(length - reserve, length // 2)
        for used in range(len(recalled), -1, -1):
            shown = context.unmarked(context.retrieved(recalled[:used]), template)
            asking = client.piece(shown + context.asked(prompt, template))
            if room is None or asking.count <= context.aside(room):
                break
        sizes = [part.count for part in parts]
        amounts = sizes
        if room is not None and sum(sizes) + max(asking.count, context.aside(room)) > room:
            pinned, tail = context.fit(sizes[:PINNED], sizes[PINNED:], asking.count, room)
            amounts = pinned + tail
        cut: dict[str, Any] | None = None
        if amounts != sizes or used != len(recalled):
            cut = {"model_length": length, "room": room, "tokens": sum(sizes) + asking.count}
            cut |= context.left_out(indexes, sizes, amounts) | {"retrieved_left_out": len(recalled) - used}
        prefix = [client.piece(prompt.prefix)] if prompt.prefix else []
        own = joined([asking, *prefix])
        in_it = [index for index, amount in zip(indexes, amounts, strict=True) if amount and index >= PINNED]
        return Read(
            prompt=joined([*(part.first(n) for part, n in zip(parts, amounts, strict=True)), asking]),
            first_block=min(in_it, default=end),
            cut=cut,
            asking=own if isinstance(own, Tokens) else None,
            unstored={index: kept[index] for index in indexes if not kept[index].stored},
            model=client.model,
            most=None if length is None else length - questions + sum(piece.count for piece in prefix),
        )

    def _pieces(self, claim: Claimed, tokenizer: tuple[int, ...], first: int, pinned: int = 0) -> dict[int, Piece]:
        """What is kept of a trace, by index, without the blocks before `first` that are not `pinned`.

        Each step gets a dictionary of its own, because another thread may ask about older or newer blocks meanwhile.
        """
        key = (claim.restarts, *tokenizer)
        with self._lock:
            _, before, kept = self._kept.pop(claim.trace_id, (0.0, key, {}))
            found = kept.copy().items() if before == key else ()  # the thread that has `kept` may be filling it
            kept = {index: piece for index, piece in found if index < pinned or index >= first}
            self._kept[claim.trace_id] = (now := time.monotonic(), key, kept)
            while len(self._kept) > TRACES_KEPT or next(iter(self._kept.values()))[0] < now - KEPT_SECONDS:
                self._kept.popitem(last=False)
            return kept

    def _conversation(
        self, claim: Claimed, prompt: Prompt, spec: TraceSpec, template: Template, client: ModelClient
    ) -> Read:
        """The messages of the window. Raises ModelError where they leave no room for another one."""
        messages, end = self._messages(claim, prompt, client.tokenizer), prompt.window[1]
        parts: list[Text | Tokens] = []
        after: BlockType | None = None
        for piece in messages.values():
            known = piece.tokens if piece.after == after else None
            part = known or message(piece, template, client, after)
            if isinstance(part, Tokens) and piece.tokens is None:
                piece.tokens, piece.after = part, after
            parts.append(part)
            after = piece.type
        opening = client.piece(context.opening(prompt.type, template, after))
        parts.append(opening)
        length, count = length_of(spec, client), sum(part.count for part in parts)
        if length is not None and count >= length:
            raise ModelError(f"the conversation takes {count} of the model's {length} tokens: no room is left")
        return Read(
            prompt=joined(parts),
            first_block=min(messages, default=end),
            asking=opening if isinstance(opening, Tokens) else None,
            unstored={index: piece for index, piece in messages.items() if not piece.stored},
            count=count,
            model=client.model,
            length=length,
            most=length,
        )

    def said(self, claim: Claimed, prompt: Prompt, spec: TraceSpec, client: ModelClient) -> tuple[list[Said], Read]:
        """The messages of a conversation for a chat API, which applies the template itself."""
        messages = self._messages(claim, prompt, ())
        said = [(piece.type, piece.text) for piece in messages.values() if piece.type is not None]
        count = sum(math.ceil(len(text) / DEFAULT_CHARS_PER_TOKEN) for _, text in said)
        first = min(messages, default=prompt.window[1])
        return said, Read("", first, count=count, model=client.model, length=length_of(spec, client))

    def _messages(self, claim: Claimed, prompt: Prompt, tokenizer: tuple[int, ...]) -> dict[int, Piece]:
        """The messages of a conversation, by index."""
        first, end = prompt.window
        kept = self._pieces(claim, tokenizer, first)
        missing = next((index for index in range(first, end) if index not in kept), None)
        if missing is not None:
            with single().connect() as conn:
                for row in sql.run(conn, "store/messages_of_window", trace=claim.trace_id, first=missing, end=end):
                    kept[row.index] = Piece(row.text, BlockType(row.type), row.token_ids)
        return {index: kept[index] for index in range(first, end) if kept[index].type in MESSAGE}

    @staticmethod
    def _fetch(conn: Connection, trace_id: int, kept: dict[int, Piece], first: int, end: int) -> None:
        missing = next((index for index in range(first, end) if index not in kept), None)
        if missing is not None:
            texts = blocks.texts(conn, trace_id, missing, end)
            kept.update((index, Piece(text)) for index, text in enumerate(texts, missing))


def length_of(spec: TraceSpec, client: ModelClient) -> int | None:
    """Tokens that a prompt and its continuation may take: the job's limit, or the model's if that is less."""
    return min((limit for limit in (spec.settings.context, client.length) if limit), default=None)


def begun(client: ModelClient, prompt: str | Tokens, prefix: str, above: str) -> str | Tokens:
    """A prompt with the beginning of the body in it: the fixed `prefix`, then the rest of `above`."""
    if isinstance(prompt, str):
        return prompt + above
    rest = above.removeprefix(prefix)
    return joined([prompt, *(client.encode(text) for text in (prefix, rest) if text)])


class Body(NamedTuple):
    """The body of a block that the model is asked about."""

    text: str
    sampled: list[int] | None = None
    """Ids of its tokens, where the model wrote exactly this text."""
    stopped: bool = False
    """Whether a stop string ended it."""


def question_prompt(
    client: ModelClient, prompt: str | Tokens, prefix: str, asked: Body, question: str, stops: Sequence[str]
) -> str | Tokens:
    """A prompt that asks about a body of text, which one of `stops` may have ended.

    With the ids of its tokens the prompt goes on from what is in the server's cache, token for token.
    """
    body, sampled, stopped = asked
    suffix = context.question_suffix(body, question)
    if isinstance(prompt, str):
        return prompt + suffix
    pieces = [prompt]
    if suffix.startswith(prefix):
        if prefix:
            pieces.append(client.encode(prefix))
            body, suffix = body.removeprefix(prefix), suffix.removeprefix(prefix)
        if sampled is not None:
            found = whole_tokens(sampled, body, stops if stopped else None, client.word)
            if found is not None:
                kept, over = found
                pieces.append(Tokens.of(sampled[:kept]))
                suffix = over + suffix[len(body.rstrip("\n")) :]
    pieces.append(client.encode(suffix))
    return joined(pieces)
