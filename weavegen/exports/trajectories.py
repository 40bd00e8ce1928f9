"""`messages` and `trajectories`: conversations, as text and as the very tokens that were read and sampled.

A trace of some agents is several conversations, each with a context of its own: a row is one of them. A trajectory
is one sequence over all its turns, put together of the tokens that the model read and of those that it sampled:
nothing is tokenised again. Masks have -100 and logprobs 1.0 on all that it only read, tools' answers
included; this is the form of ScoredData in atroposlib/api/server.py (NousResearch/atropos).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from weavegen.exports.atropos import READ, READ_LOGPROB
from weavegen.exports.format import Key, Row, RowFormat, Source, column
from weavegen.exports.read_prompts import numbers, reals
from weavegen.kernel.context import SPOKEN
from weavegen.trace.blocks import MESSAGE

TRACE = "select * from conversations where trace_id = :trace"
MESSAGES = """
select b.index as at, b.type, coalesce(c.text, b.body) as text, k.token_ids::text as read,
  (s.request #>> '{prompt,window,0}')::bigint as first,
  p.token_ids::text as opening, c.token_ids::text as sampled, c.logprobs::text as logprobs
from blocks b
left join block_tokens k on k.trace_id = b.trace_id and k.index = b.index
left join candidates c on c.id = b.candidate_id
left join prompts p on p.step_id = c.step_id
left join steps s on s.id = c.step_id
where b.trace_id = :trace and b.type = any(:types) order by b.index
"""
ABOUT = [
    column("success", pa.bool_(), "What the agent returned as success; null: nothing."),
    column("score", pa.float64(), "1 where it succeeded, 0 where it did not; null: it does not say."),
    column("error", pa.string(), "Why there was no success, where that is known."),
    column("trace_id", pa.int64(), "The trace: `weavegen show ID`."),
    column("conversation", pa.int32(), "Number of the conversation within the trace, from 0."),
    column("first_block", pa.int64(), "Index of the trace's block with which it begins."),
    column("job", pa.string(), "Name of the job."),
    column("agent", pa.string(), "The program that wrote it: react, research, ..."),
    column("model", pa.string(), "The model that wrote it."),
    column("bootstrap", pa.string(), "File name of the bootstrap, or the beginning of the task."),
    column("replies", pa.int64(), "Messages that the model wrote in it."),
]
OF_TRACE = ("success", "error", "trace_id", "job", "agent", "model", "bootstrap")


@dataclass
class Trajectory:
    """A conversation as tokens. All lists are equally long."""

    tokens: list[int] = field(default_factory=list)
    masks: list[int] = field(default_factory=list)
    """The token where the model sampled it, else -100."""
    logprobs: list[float] = field(default_factory=list)
    """Of what it sampled, the model's own; else 1.0."""

    def read(self, ids: list[int]) -> None:
        """What the model only read."""
        self.tokens += ids
        self.masks += [READ] * len(ids)
        self.logprobs += [READ_LOGPROB] * len(ids)

    def sampled(self, ids: list[int], logprobs: list[float]) -> None:
        """What the model wrote."""
        self.tokens += ids
        self.masks += ids
        self.logprobs += logprobs


def conversations(conn: sa.Connection, trace: int) -> list[list[Any]]:
    """The conversations of a trace: messages up to the model's last one, with what is recorded of their tokens.

    Which message the model read first, the step says that sampled an answer.
    """
    types = [str(type) for type in MESSAGE]
    found = conn.execute(sa.text(MESSAGES), {"trace": trace, "types": types}).all()
    ends = {row.first: row.at for row in found if row.first is not None}
    return [[row for row in found if first <= row.at <= last] for first, last in sorted(ends.items())]


def messages(found: list[Any]) -> list[dict[str, str]]:
    """A conversation as chat messages; what tools answered is the user's, as the model read it."""
    return [{"role": SPOKEN.get(row.type, "user"), "content": row.text} for row in found]


def trajectory(found: list[Any]) -> Trajectory | None:
    """A conversation as tokens; None where they are not all recorded.

    What the model wrote in another conversation, inside of this one, it has only read in this one.
    """
    told, first = Trajectory(), found[-1].first
    for row in found:
        if row.first != first:
            if row.read is None:
                return None
            told.read(numbers(row.read))
            continue
        if row.opening is None or row.sampled is None or row.logprobs is None:
            return None
        opening, ids, logprobs = numbers(row.opening), numbers(row.sampled), reals(row.logprobs)
        told.read(opening)
        if row is found[-1]:
            told.sampled(ids, logprobs)
            break
        if row.read is None:
            return None
        rest = numbers(row.read)[len(opening) :]
        kept = next((n for n, pair in enumerate(zip(ids, rest, strict=False)) if pair[0] != pair[1]), None)
        kept = min(len(ids), len(rest)) if kept is None else kept
        told.sampled(ids[:kept], logprobs[:kept])
        told.read(rest[kept:])
    return told


def about(source: Source, trace: int) -> Iterator[tuple[Row, list[Any]]]:
    """Each conversation of a trace, with the columns that both formats have."""
    row = source.conn.execute(sa.text(TRACE), {"trace": trace}).mappings().one_or_none()
    if row is None:
        source.leave_out("the trace has gone")
        return
    found = conversations(source.conn, trace)
    if not found:
        source.leave_out("the model wrote nothing in it")
    score = None if row["success"] is None else float(row["success"])
    for number, one in enumerate(found):
        yield (
            {name: row[name] for name in OF_TRACE}
            | {
                "score": score,
                "conversation": number,
                "first_block": one[0].at,
                "replies": sum(message.first == one[-1].first for message in one),
                "messages": messages(one),
            },
            one,
        )


def message_rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
    for row, _ in about(source, trace):
        yield row


def trajectory_rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
    for row, found in about(source, trace):
        told = trajectory(found)
        if told is None:
            source.leave_out("its token ids are not all recorded: enqueue with --set tokens=chosen")
            continue
        yield row | {
            "tokens": told.tokens,
            "masks": told.masks,
            "logprobs": told.logprobs,
            "group": f"{row['job']}: {row['bootstrap']}",
        }


CHAT = column(
    "messages",
    pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})),
    "The conversation: system, user and assistant; what tools answered is the user's.",
)
FORMAT = RowFormat(
    name="messages",
    about="Conversations as chat messages: TRL's conversational SFT.",
    view="conversations",
    key=("trace_id",),
    schema=pa.schema([CHAT, *ABOUT]),
    rows=message_rows,
)
TOKENS = RowFormat(
    name="trajectories",
    about="Conversations token by token, with masks, logprobs and a score: what a trainer by reinforcement takes.",
    view="conversations",
    key=("trace_id",),
    schema=pa.schema(
        [
            column(
                "tokens", pa.list_(pa.int64()), "Ids of the whole conversation, up to the model's last message."
            ),
            column("masks", pa.list_(pa.int64()), "The same, with -100 for each token that the model only read."),
            column("logprobs", pa.list_(pa.float64()), "Of sampled tokens, as the server told; else 1.0."),
            column("group", pa.string(), "Job and bootstrap: trajectories of one task, to compare."),
            CHAT,
            *ABOUT,
        ]
    ),
    rows=trajectory_rows,
)
