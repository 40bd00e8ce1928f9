"""Blocks: their types, which type may follow which, and the value object of a recorded block."""

import enum
from collections.abc import Mapping
from typing import Any

import msgspec


class BlockType(enum.StrEnum):
    GENESIS = "genesis"
    BOOTSTRAP = "bootstrap"
    TASK_REMINDER = "task-reminder"
    OBSERVATION = "observation"
    ORIENTATION = "orientation"
    ACTION = "action"
    ERROR = "error"
    DEBUG = "debug"
    BACKTRACK = "backtrack"
    EXPECTATION = "expectation"
    OPTION = "option"
    OBSERVATION_INFERENCE = "observation-inference"
    EVALUATION = "evaluation"
    OUTCOME = "outcome"
    RETURN = "return"
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


T = BlockType  # a short name for the tables below
ANY = frozenset(BlockType)

MESSAGE = frozenset({T.SYSTEM, T.USER, T.ASSISTANT, T.TOOL})
"""Messages of a conversation (agents/dialogue.py). The model reads them in its chat template."""

PROSE = frozenset({T.ORIENTATION, T.DEBUG, T.BACKTRACK, T.EXPECTATION})
"""Blocks whose body is one triple-quoted string."""

CALLBACK = frozenset({T.ACTION, T.EVALUATION})
"""Blocks whose body is one function and the call that registers it."""

IMAGINED = frozenset({T.OBSERVATION, T.ERROR, T.OUTCOME})
"""Blocks that the environment writes; in planning the model writes them."""

ON_REQUEST = {T.ACTION: PROSE, T.RETURN: PROSE, **dict.fromkeys(PROSE | {T.ERROR}, frozenset({T.RETURN}))}
"""What may follow because a callback asks for it.

An action can have the model write a block of reasoning, which stands between the action and its return. A callback
can add an error block and yet succeed.
"""

USUAL: dict[BlockType, frozenset[BlockType]] = {
    T.GENESIS: ANY,
    T.BOOTSTRAP: ANY,
    T.TASK_REMINDER: frozenset({T.OBSERVATION, T.ORIENTATION, T.ERROR}),
    T.OBSERVATION: frozenset({T.OBSERVATION, T.ORIENTATION, T.ERROR}),
    T.ORIENTATION: frozenset({T.ACTION, T.ERROR}),
    T.ACTION: frozenset({T.EXPECTATION, T.ERROR, T.BACKTRACK, T.TASK_REMINDER, T.RETURN}),
    T.ERROR: CALLBACK | IMAGINED | {T.DEBUG, T.ORIENTATION, T.EXPECTATION, T.TASK_REMINDER},
    T.DEBUG: frozenset({T.ACTION, T.EVALUATION, T.TASK_REMINDER, T.ERROR, T.EXPECTATION}),
    T.BACKTRACK: frozenset({T.ACTION, T.EVALUATION, T.TASK_REMINDER, T.ERROR}),
    T.EXPECTATION: frozenset({T.OPTION, T.OBSERVATION_INFERENCE, T.TASK_REMINDER, T.ERROR}),
    T.OPTION: frozenset({T.OBSERVATION_INFERENCE, T.EVALUATION}),
    T.OBSERVATION_INFERENCE: frozenset({T.EVALUATION, T.ERROR, T.TASK_REMINDER}),
    T.EVALUATION: frozenset({T.OUTCOME, T.ERROR}),
    T.OUTCOME: frozenset({T.TASK_REMINDER, T.ERROR, T.RETURN}),
    T.RETURN: frozenset({T.OUTCOME, T.EXPECTATION, T.ERROR, T.TASK_REMINDER, T.RETURN}),
    **dict.fromkeys(MESSAGE, MESSAGE | {T.ERROR, T.OUTCOME}),
}
"""Which type of block follows which in ticks whose callbacks ask for no block.

Wider than weave-agent's table in four places. A tick whose attempts at an action all failed goes on with its
expectation, after an error. A failing observation view is an error block, so an error may
follow a task-reminder, and an observation or orientation may follow an error. A subagent's ticks stand between the
action that called it (or the return of the subagent called before) and its own return, which follows an outcome.
The return of an agent that worked in a trace of its own directly follows the action.
"""

VERIFIED = {T.OUTCOME: frozenset({T.OUTCOME, T.USER})}
"""What else may follow in a Harbor task: its verification is an outcome by itself, before the next instruction."""

SUCCESSORS = {
    type: usual | ON_REQUEST.get(type, frozenset()) | VERIFIED.get(type, frozenset()) for type, usual in USUAL.items()
}
"""Which type of block may follow which."""

COMMENTED = frozenset({T.TASK_REMINDER, T.OBSERVATION, T.ERROR, T.OUTCOME, T.RETURN}) | MESSAGE
"""Blocks whose body is plain text. It is rendered as comment lines."""

FULL_BLOCK = 768
"""Tokens of a full block. A subagent may choose a half or a quarter of it (`Subagent.block_size`)."""


class Label(msgspec.Struct, frozen=True):
    """A yes/no answer drawn with the model's own probability, once, when the block is recorded."""

    question: str
    answer: bool
    probability: float
    """Probability of the drawn answer, 0 to 1, rounded to five digits. The trace shows it as a percentage."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What a block has before it is recorded."""

    type: BlockType
    body: str
    block_size: int | None = None
    """Token limit, if the model wrote the block."""
    bm25_query: str | None = None
    title: str | None = None
    """Title of an observation."""
    tick_start: int | None = None
    """Index of the tick's first block, in an orientation."""
    working_directory: str | None = None
    compiles: bool = True
    """False: the body is not legal Python. It is rendered as comments, so that the trace still compiles."""
    ran: bool | None = None
    """Whether it ran without errors. None: it was not executed."""
    tags: tuple[str, ...] = ()


class Block(Draft, frozen=True, kw_only=True):
    """A recorded block. `render.render_block` renders it, `render.parse_trace` parses it.

    Its texts are normalised (`render.normalise_body`, `render.one_line`), so that they parse back unchanged.
    """

    subagent: str = "main"
    index: int
    timestamp: float
    """When the writing of the block began, in seconds since the epoch."""
    time_remaining: float
    """Seconds of the subagent's time budget that remain at `timestamp`."""
    label: Label | None = None


PLAIN_COLUMNS = tuple(name for name in Block.__struct_fields__ if name not in ("type", "label", "tags"))
"""Fields of a block that are columns of the table `blocks` with the same name and value."""


def block_from_columns(row: Mapping[str, Any]) -> Block:
    """The block that a row of the table `blocks` describes. Other columns are ignored."""
    drawn = [row[name] for name in Label.__struct_fields__]
    label = None if None in drawn else Label(*drawn)
    values = {name: row[name] for name in PLAIN_COLUMNS}
    return Block(type=BlockType(row["type"]), label=label, tags=tuple(row["tags"]), **values)
