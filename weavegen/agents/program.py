"""What every agent program is given, and the type of what it is."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import msgspec

from weavegen.kernel.replay import Cursor, Program
from weavegen.kernel.seeds import derive_seed
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import Append, Effect, Execute, Op, Step
from weavegen.trace.blocks import FULL_BLOCK, Block, BlockType

R = TypeVar("R")
Part: TypeAlias = Generator[Step | tuple[Step, ...], Any, R]
"""A part of a program, used with `yield from`."""


@dataclass(frozen=True)
class Tick:
    """One tick of one agent. All of it is the same at every replay; the cursor says how far the replay is."""

    newest: Settings
    """Those that the tick is written under; of a fork's inherited blocks see `settings`."""
    cursor: Cursor
    bootstrap: str = ""
    """Source of the bootstrap file, in tick 0, which writes it into the trace."""

    inherited: tuple[Settings, ...] = ()
    """Those that others wrote its first blocks under: of each of `Start.inherited`."""
    block_size: int = FULL_BLOCK
    """Tokens that the subagent may write in a block."""

    @property
    def settings(self) -> Settings:
        """Those under which the block is written that the cursor is at."""
        start, index = self.cursor.start, self.cursor.index
        either = zip(start.inherited, self.inherited, strict=True)
        return next((settings for terms, settings in either if index < terms.until), self.newest)

    @property
    def number(self) -> int:
        """0 is the bootstrap's own tick."""
        return self.cursor.start.tick

    @property
    def subagent(self) -> str:
        """Whose tick it is."""
        return self.cursor.start.subagent

    def append(self, draft: Append) -> Block:
        """Record a block. It is stored in the transaction that advances the journal."""
        return self.cursor.append(draft)

    def emit(self, effect: Effect) -> None:
        """Record a reward, an event, or what a tool or a program did. It is stored in the same transaction."""
        self.cursor.emit(effect)

    def execute(self, op: Op, type: BlockType | None = None, source: str = "") -> Execute:
        """A step in the trace's environment, for this subagent."""
        return Execute(op=op, subagent=self.subagent, type=type, source=source)

    def seed(self, purpose: str) -> int:
        """A seed that depends on the trace's seed, the tick, and how many steps the program has taken."""
        seed = self.cursor.start.seed_of(self.cursor.index)
        return derive_seed(seed, self.number, self.cursor.ordinal, purpose)


@dataclass(frozen=True)
class Agent:
    """A program that writes traces, and what it can be given."""

    program: Callable[[Tick], Program]
    task: type[msgspec.Struct] | None = None
    """The form of its tasks, which are JSON; None: it is given bootstrap files alone."""
    bootstraps: bool = True
    """Whether it can be given a bootstrap file."""
