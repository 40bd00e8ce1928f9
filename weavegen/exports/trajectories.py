"""`messages` and `trajectories`: conversations as chat messages, and as the tokens that were read and sampled.

A trace may consist of several conversations, each with a context of its own. A row is one conversation. A
trajectory is one sequence over all turns of a conversation. It consists of the recorded token ids: nothing is
tokenised again. Masks are -100 and logprobs 1.0 for each token that the model only read, answers of tools
included. This is the form of ScoredData in atroposlib/api/server.py (NousResearch/atropos).
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from weavegen import sql
from weavegen.database import Connection
from weavegen.exports.completions import values
from weavegen.exports.format import Key, Row, RowFormat, Source, declared
from weavegen.exports.read_prompts import integers, reals
from weavegen.exports.text import about_trace
from weavegen.kernel.template import reply_after
from weavegen.pool.chat_messages import messages_of
from weavegen.trace.blocks import MESSAGE, BlockType

READ_MASK, READ_LOGPROB = -100, 1.0
"""Mask and logprob of a token that the model read and did not write."""
NOT_RECORDED = "its token ids are not all recorded: enqueue with --set tokens=chosen"


Part = tuple[list[int], list[float] | None]
"""Consecutive tokens, with logprobs if the model sampled them in this conversation; None: it only read them."""


@dataclass
class Tokens:
    """A sequence of tokens. All lists have the same length."""

    tokens: list[int] = field(default_factory=list)
    masks: list[int] = field(default_factory=list)
    """The token if the model sampled it, else -100."""
    logprobs: list[float] = field(default_factory=list)
    """The model's logprob if it sampled the token, else 1.0."""

    @classmethod
    def of(cls, parts: Iterable[Part]) -> Self:
        """The sequence of these parts."""
        whole = cls()
        for ids, logprobs in parts:
            whole.tokens += ids
            whole.masks += [READ_MASK] * len(ids) if logprobs is None else ids
            whole.logprobs += [READ_LOGPROB] * len(ids) if logprobs is None else logprobs
        return whole


def conversations(conn: Connection, trace: int) -> list[list[Any]]:
    """The conversations of a trace: rows of messages up to the model's last one, with their recorded tokens.

    The step that sampled a message tells with which message its conversation begins.
    """
    types = [str(type) for type in MESSAGE]
    messages = sql.run(conn, "exports/conversation-messages", trace=trace, types=types).all()
    ends = {row.first: row.at for row in messages if row.first is not None}
    return [[row for row in messages if first <= row.at <= last] for first, last in sorted(ends.items())]


def parts_of(rows: list[Any]) -> Iterator[list[Part]] | None:
    """The parts of each message of a conversation; None where not all tokens are recorded.

    Messages that the model wrote in a nested conversation were only read in this one.
    """
    first, last = rows[-1].first, rows[-1]
    for row in rows:
        sampled = row.first == first and None in (row.opening, row.sampled, row.logprobs)
        if sampled or (row is not last and row.read is None):
            return None
    return (message_parts(row, row is last) if row.first == first else [(integers(row.read), None)] for row in rows)


def message_parts(row: Any, last: bool) -> list[Part]:
    """The parts of a message that the model wrote: the opening, what it sampled, and unless it is the `last`, the rest.

    Later turns read the sampled tokens up to the stop sequence, and then what closes a message.
    """
    opening, ids, logprobs = integers(row.opening), integers(row.sampled), reals(row.logprobs)
    if last:
        return [(opening, None), (ids, logprobs)]
    rest = integers(row.read)[len(opening) :]
    kept = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(ids, rest, strict=False))))
    return [(opening, None), (ids[:kept], logprobs[:kept]), (rest[kept:], None)]


def conversation_rows(source: Source, trace: int) -> Iterator[tuple[Row, list[Any]]]:
    """Each conversation of a trace, with the columns that both formats have."""
    if (row := about_trace(source, "conversations", trace)) is None:
        return
    found = conversations(source.conn, trace)
    if not found:
        source.left_out["the model wrote nothing in it"] += 1
    for number, conversation in enumerate(found):
        said = [(BlockType(one.type), one.text) for one in conversation]
        thought = [(type, reply_after("", text) if type is BlockType.ASSISTANT else text) for type, text in said]
        about = {
            "score": None if row["success"] is None else float(row["success"]),
            "conversation": number,
            "first_block": conversation[0].at,
            "offered_tools": next((message.tools for message in conversation if message.tools is not None), None),
            "replies": sum(message.first == conversation[-1].first for message in conversation),
            "messages": messages_of(thought, native=False),
        }
        yield values(row, MESSAGES.schema.names) | about, conversation


def message_rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
    for row, conversation in conversation_rows(source, trace):
        if source.template is not None:  # student.py takes it out again
            row["spoken"] = conversation
        yield row


def trajectory_rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
    group = sql.run(source.conn, "exports/trajectory-group", trace=trace).scalar_one_or_none()
    for row, conversation in conversation_rows(source, trace):
        if (messages := parts_of(conversation)) is None:
            source.left_out[NOT_RECORDED] += 1
        else:
            tokens = Tokens.of(itertools.chain.from_iterable(messages))
            yield row | vars(tokens) | {"group": group}


MESSAGES = RowFormat(rows=message_rows, **declared("messages"))
TRAJECTORIES = RowFormat(rows=trajectory_rows, **declared("trajectories"))
