"""The block: its types, which may follow which, and the value object everything else passes around."""

import enum

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
"""Messages of a conversation (agents/dialogue.py): the model reads them by its chat template."""

SUCCESSORS: dict[BlockType, frozenset[BlockType]] = {
    T.GENESIS: ANY,
    T.BOOTSTRAP: ANY,
    T.TASK_REMINDER: frozenset({T.OBSERVATION, T.ORIENTATION, T.ERROR}),
    T.OBSERVATION: frozenset({T.OBSERVATION, T.ORIENTATION, T.ERROR}),
    T.ORIENTATION: frozenset({T.ACTION, T.ERROR}),
    T.ACTION: frozenset({T.EXPECTATION, T.ERROR, T.BACKTRACK, T.TASK_REMINDER, T.RETURN}),
    T.ERROR: frozenset(
        {T.DEBUG, T.ACTION, T.EVALUATION, T.OUTCOME, T.TASK_REMINDER, T.ERROR, T.OBSERVATION, T.ORIENTATION}
    ),
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
"""Which block may follow which.

Wider than weave-agent's table in three places. A failing observation view is an error block, so an error may
follow a task-reminder, and an observation or orientation may follow an error. A subagent's ticks lie between the
action that called it, or the return of the one called before, and its own return, which follows an outcome. What
other agents return, who work in traces of their own, follows the action at once.
"""

PROSE = frozenset({T.ORIENTATION, T.DEBUG, T.BACKTRACK, T.EXPECTATION})
"""Blocks whose body is one triple-quoted string."""

CALLBACK = frozenset({T.ACTION, T.EVALUATION})
"""Blocks whose body is one function and the call that registers it."""

COMMENTED = frozenset({T.TASK_REMINDER, T.OBSERVATION, T.ERROR, T.OUTCOME, T.RETURN}) | MESSAGE
"""Blocks whose body is plain text, rendered as comment lines."""

IMAGINED = frozenset({T.OBSERVATION, T.ERROR, T.OUTCOME})
"""Blocks that the world writes, and in planning the model."""

FULL_BLOCK = 768
"""Tokens of a full block. A subagent may also choose half of it or a quarter (`Subagent.block_size`)."""


class Label(msgspec.Struct, frozen=True):
    """A yes/no answer drawn with the model's own probability, once, when the block is recorded."""

    question: str
    answer: bool
    probability: float
    """Of the drawn answer, 0 to 1, rounded to five digits (what the trace shows as a percentage)."""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded block. `render.render_block` makes its text, `render.parse_trace` reads it back."""

    type: BlockType
    body: str
    """Normalised by `render.normalise_body`: what is stored is what is rendered."""
    subagent: str = "main"
    index: int
    timestamp: float
    """Seconds since the epoch when the writing of the block began."""
    time_remaining: float
    """Seconds left of the subagent's time budget at `timestamp`."""
    block_size: int | None = None
    """Tokens the model was given, where it wrote the block."""
    bm25_query: str | None = None
    title: str | None = None
    """Of an observation."""
    tick_start: int | None = None
    """Of an orientation: the index of the tick's first block."""
    working_directory: str | None = None
    compiles: bool = True
    """False: the body is no legal Python; it is rendered commented out so that the trace still compiles."""
    label: Label | None = None
    ran: bool | None = None
    """Whether an executed block ran without errors; None if it was not executed."""
    tags: tuple[str, ...] = ()
