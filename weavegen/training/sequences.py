"""Traces as sequences of tokens, with a mark on each that the model shall learn to write. No PyTorch here."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from weavegen.evaluator.rubrics import WILL_RUN
from weavegen.trace.blocks import CALLBACK, PROSE, Block, BlockType, Label
from weavegen.trace.render import RAN_QUESTION, render_block
from weavegen.training.plan import IGNORED
from weavegen.training.tokenizer import BEGIN

LEAST = 0.6
"""P(yes) to its question from which on a block is worth imitating."""
MIDDLE = 0.25
"""Share of windows that begin in the middle of a tick, which is not taught."""
SHORT = 0.5
"""Share of executed actions that are asked one question alone: in a trace two labels stand below one another, but
whoever asks about a block asks one thing."""

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Piece:
    """A block's tokens."""

    ids: Ids
    labels: Ids
    """The same, or IGNORED."""
    type: BlockType


def pieces(blocks: Iterable[Block], tokenizer: Tokenizer, chance: random.Random) -> Iterator[Piece]:
    """Blocks of a trace as tokens. The pinned ones are not wanted: no small model's window holds them."""
    for block in blocks:
        shown = asked(block, chance)
        rendered = render_block(shown)
        if shown.type is BlockType.OPTION and chance.random() < 0.5:
            rendered = rendered.replace("#q: ", "\n#q: ", 1)  # so it is asked; above it is how it is recorded
        found = tokenizer.encode(rendered, add_special_tokens=False)
        ids = np.array(found.ids, np.int32)
        wanted = np.zeros(len(ids), bool)
        for start, end in spans(shown, rendered):
            wanted |= np.array([start <= first and last <= end for first, last in found.offsets])
        yield Piece(ids, np.where(wanted, ids, IGNORED).astype(np.int32), block.type)


def asked(block: Block, chance: random.Random) -> Block:
    """An executed action now and then with one question alone, whose answer is known."""
    if block.type is not BlockType.ACTION or block.ran is None or chance.random() >= SHORT:
        return block
    if chance.random() < 0.5:
        return msgspec.structs.replace(block, label=None)
    return msgspec.structs.replace(block, label=Label(WILL_RUN, block.ran, 1.0), ran=None)


def worth_imitating(block: Block) -> bool:
    """Whether the model shall learn to write blocks like this one."""
    if block.type not in PROSE | CALLBACK or not block.compiles or block.ran is False:
        return False
    if block.label is None or block.label.question == WILL_RUN:
        return True
    yes = block.label.probability if block.label.answer else 1 - block.label.probability
    return yes >= LEAST


def spans(block: Block, rendered: str) -> Iterator[tuple[int, int]]:
    """What of a block's text the model shall learn to write, as [start, end): answers in any case.

    A body with what ends it, which is the question below it, or the end of the block.
    """
    if block.bm25_query is not None:
        start = rendered.index("#bm25_query ") + len("#bm25_query ")
        yield start, rendered.index("\n", start) + 1
    if worth_imitating(block) and block.body:
        start = rendered.index(block.body)
        behind = rendered.index("\n", start + len(block.body)) + 1
        yield start, rendered.index("\n", behind) + 1 if rendered.startswith("#endblock", behind) else behind
        if rendered.startswith("#q: ", behind):
            yield behind, rendered.index("? ", behind) + 2
    for question, answer in (
        (block.label and block.label.question, block.label and block.label.answer),
        (RAN_QUESTION, block.ran),
    ):
        if question is not None and answer is not None:
            start = rendered.index(f"#q: {question} ") + len(f"#q: {question} ")
            yield start, start + (3 if answer else 2)


def close_ups(
    traces: Sequence[Sequence[Piece]], tokenizer: Tokenizer, length: int, chance: random.Random
) -> list[tuple[Ids, Ids]]:
    """Orientations behind nothing but what was observed just before, in a random order; none longer than `length`.

    To read off an observation is what a model has to learn first. Behind whole ticks it hardly does: in a window
    of 1,024 tokens there are two of these places, here one in a hundred tokens.
    """
    begin = np.array([tokenizer.token_to_id(BEGIN)], np.int32)
    found = []
    for trace in traces:
        seen: list[Ids] = []
        for piece in trace:
            if piece.type is BlockType.OBSERVATION:
                seen.append(piece.ids)
                continue
            if seen and piece.type is BlockType.ORIENTATION and (piece.labels != IGNORED).any():
                before = np.concatenate([begin, *seen])
                labels = np.concatenate([np.full(len(before), IGNORED, np.int32), piece.labels])
                if len(labels) <= length:
                    found.append((np.concatenate([before, piece.ids]), labels))
            seen = []
    chance.shuffle(found)
    return found


def packed(found: Sequence[tuple[Ids, Ids]], length: int) -> Iterator[tuple[Ids, Ids]]:
    """Sequences one behind another, as many as `length` tokens hold; the last ones may be left over."""
    at = 0
    while at < len(found):
        end, room = at, length
        while end < len(found) and len(found[end][0]) <= room:
            room -= len(found[end][0])
            end += 1
        if end == len(found) or end == at:
            return
        ids, labels = zip(*found[at:end], strict=True)
        yield np.concatenate(ids), np.concatenate(labels)
        at = end


def windows(
    traces: Sequence[Sequence[Piece]], tokenizer: Tokenizer, length: int, chance: random.Random
) -> Iterator[tuple[Ids, Ids]]:
    """Tokens and labels of windows of `length`: the token that begins a text, then blocks, the last one cut.

    Each block of the traces is taught once, in a random order. A window begins with a tick that it teaches, or now
    and then (MIDDLE) somewhere in the one before it, as the prompts do that a server has cut.
    """
    begin = np.array([tokenizer.token_to_id(BEGIN)], np.int32)
    silent = np.array([IGNORED], np.int32)
    order = list(range(len(traces)))
    chance.shuffle(order)
    stream = [piece for number in order for piece in traces[number]]
    starts = [at for at, piece in enumerate(stream) if piece.type is BlockType.TASK_REMINDER]
    tick = taught = 0
    while tick < len(starts):
        first = begun = starts[tick]
        if tick and chance.random() < MIDDLE:
            first = chance.randint(starts[tick - 1] + 1, begun)
        ids, labels, at, room = [begin], [silent], first, length - 1
        while room > 0 and at < len(stream):
            piece = stream[at]
            new = at >= max(begun, taught)
            shown = piece.labels if new else np.full(len(piece.ids), IGNORED, np.int32)
            ids.append(piece.ids[:room])
            labels.append(shown[:room])
            room -= len(piece.ids)
            at += 1
        if room > 0:
            return  # the stream is over: the last window would be short
        yield np.concatenate(ids), np.concatenate(labels)
        taught = at - 1 if room < 0 else at
        while tick < len(starts) and starts[tick] < taught:
            tick += 1
        # The tick that the window's end cuts is shown anew, unless it is longer than a window.
        if tick < len(starts) and starts[tick - 1] > begun and starts[tick] > taught:
            tick -= 1


def read(traces: Iterable[Iterable[Block]], tokenizer: Tokenizer, seed: int) -> list[list[Piece]]:
    """The blocks of traces as tokens."""
    chance = random.Random(seed)
    return [list(pieces(blocks, tokenizer, chance)) for blocks in traces]
