"""Traces as token sequences. Labels mark the tokens that the model learns to write. No PyTorch here."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pretraining.tokenizer import BEGIN
from weavegen.evaluator.rubrics import WILL_RUN
from weavegen.trace.blocks import CALLBACK, PROSE, Block, BlockType, Label
from weavegen.trace.render import RAN_QUESTION, render_block
from weavegen.training.plan import IGNORED

MIN_YES = 0.6
"""Blocks with a lower P(yes) to their question are not imitated."""
MIDDLE_SHARE = 0.25
"""Share of windows that begin in the middle of a tick. That tick is not taught."""
ONE_QUESTION_SHARE = 0.5
"""Share of executed actions that keep one of their two questions. In use, the evaluator is asked one at a time."""

Ids = npt.NDArray[np.int32]
TokenSequence: TypeAlias = tuple[Ids, Ids]
"""Token ids, and their labels: the same ids, or IGNORED."""


@dataclass(frozen=True)
class Piece:
    """The tokens of a block."""

    ids: Ids
    labels: Ids
    """The same ids, or IGNORED."""
    type: BlockType


def pieces(
    blocks: Iterable[Block], tokenizer: Tokenizer, chance: random.Random, queries: bool = True
) -> Iterator[Piece]:
    """The tokens of a trace's blocks. Leave out the pinned blocks: a small model's window can't hold them.

    `queries`: whether the model learns to write the blocks' queries.
    """
    for block in blocks:
        shown = with_one_question(block, chance)
        rendered = render_block(shown)
        if shown.type is BlockType.OPTION and chance.random() < 0.5:
            rendered = rendered.replace("#q: ", "\n#q: ", 1)  # as the prompt has it; the trace has no empty line
        encoded = tokenizer.encode(rendered, add_special_tokens=False)
        ids = np.array(encoded.ids, np.int32)
        taught = np.zeros(len(ids), bool)
        for start, end in spans(shown, rendered, queries):
            taught |= np.array([start <= first and last <= end for first, last in encoded.offsets])
        yield Piece(ids, np.where(taught, ids, IGNORED).astype(np.int32), block.type)


def with_one_question(block: Block, chance: random.Random) -> Block:
    """An executed action. In ONE_QUESTION_SHARE of all cases, one of its two questions is left out."""
    if block.type is not BlockType.ACTION or block.ran is None or chance.random() >= ONE_QUESTION_SHARE:
        return block
    if chance.random() < 0.5:
        return msgspec.structs.replace(block, label=None)
    return msgspec.structs.replace(block, label=Label(WILL_RUN, block.ran, 1.0), ran=None)


def worth_imitating(block: Block) -> bool:
    """Whether the model learns to write this block."""
    if block.type not in PROSE | CALLBACK or not block.compiles or block.ran is False:
        return False
    if block.label is None or block.label.question == WILL_RUN:
        return True
    yes = block.label.probability if block.label.answer else 1 - block.label.probability
    return yes >= MIN_YES


def spans(block: Block, rendered: str, queries: bool) -> Iterator[tuple[int, int]]:
    """The parts [start, end) of a block's text that the model learns to write.

    Answers always; a body only if it is worth imitating, with its end: the question below or the block's footer.
    """
    if block.bm25_query is not None and queries:
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
) -> list[TokenSequence]:
    """Orientations directly after their observations, in a random order; none longer than `length` tokens.

    A model must first learn to read an observation. It hardly learns that from windows: 1,024 tokens have two such
    places, close-ups have one in a hundred tokens.
    """
    begin = np.array([tokenizer.token_to_id(BEGIN)], np.int32)
    close_ups = []
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
                    close_ups.append((np.concatenate([before, piece.ids]), labels))
            seen = []
    chance.shuffle(close_ups)
    return close_ups


def packed(sequences: Sequence[TokenSequence], length: int) -> Iterator[TokenSequence]:
    """Concatenate sequences, as many as fit into `length` tokens. An unfilled last pack is dropped."""
    at = 0
    while at < len(sequences):
        end, room = at, length
        while end < len(sequences) and len(sequences[end][0]) <= room:
            room -= len(sequences[end][0])
            end += 1
        if end == len(sequences) or end == at:
            return
        ids, labels = zip(*sequences[at:end], strict=True)
        yield np.concatenate(ids), np.concatenate(labels)
        at = end


def windows(
    traces: Sequence[Sequence[Piece]], tokenizer: Tokenizer, length: int, chance: random.Random
) -> Iterator[TokenSequence]:
    """Windows of `length` tokens: the begin token, then blocks, the last one cut.

    Traces come in a random order, and each of their blocks is taught once. A window begins with a tick that it
    teaches, or (MIDDLE_SHARE of them) somewhere in the tick before, like prompts that a server has cut.
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
        if tick and chance.random() < MIDDLE_SHARE:
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
            return  # an unfilled last window is dropped
        yield np.concatenate(ids), np.concatenate(labels)
        taught = at - 1 if room < 0 else at
        while tick < len(starts) and starts[tick] < taught:
            tick += 1
        # The tick that the end of the window cuts is shown again, unless it is longer than a window.
        if tick < len(starts) and starts[tick - 1] > begun and starts[tick] > taught:
            tick -= 1


def joined(pieces: Sequence[Piece], tokenizer: Tokenizer, length: int) -> TokenSequence:
    """The begin token, then as many of the last tokens as a window of `length` holds."""
    begin = np.array([tokenizer.token_to_id(BEGIN)], np.int32)
    ids = np.concatenate([piece.ids for piece in pieces])[1 - length :]
    labels = np.concatenate([piece.labels for piece in pieces])[1 - length :]
    return np.concatenate([begin, ids]), np.concatenate([[IGNORED], labels]).astype(np.int32)


def read(
    traces: Iterable[Iterable[Block]], tokenizer: Tokenizer, seed: int, window: int, queries: bool = True
) -> list[list[Piece]]:
    """The tokens of traces, block by block. For `queries` see `pieces`.

    Blocks of more than half a window are left out: a prompt with such a block is cut after it.
    """
    chance = random.Random(seed)
    return [
        [piece for piece in pieces(blocks, tokenizer, chance, queries) if len(piece.ids) <= window // 2]
        for blocks in traces
    ]
