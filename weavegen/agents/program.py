"""The input of every agent program (`Tick`), and how an agent is declared (`Agent`)."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import msgspec

from weavegen.kernel.replay import Cursor, Program
from weavegen.kernel.seeds import derive_seed
from weavegen.kernel.settings import BlockSettings, Settings
from weavegen.kernel.steps import Append, Effect, Execute, Op, Prompt, Sample, Step
from weavegen.trace.blocks import FULL_BLOCK, Block, BlockType

R = TypeVar("R")
Part: TypeAlias = Generator[Step | tuple[Step, ...], Any, R]
"""A part of a program, used with `yield from`."""


@dataclass(frozen=True)
class Tick:
    """One tick of one agent. Its fields are the same at every replay; the cursor holds the replay's position."""

    newest: Settings
    """The settings of the tick's own blocks. For inherited blocks of a fork use `settings`."""
    cursor: Cursor
    bootstrap: str = ""
    """Source of the bootstrap file, or the task as JSON."""
    inherited: tuple[Settings, ...] = ()
    """For each entry of `Start.inherited`: the settings under which the other trace wrote its blocks."""
    block_size: int = FULL_BLOCK
    """Maximum number of tokens in a block of the subagent."""
    tags: tuple[str, ...] = ()
    """Tags of all its blocks."""
    mcp: bool = False
    """Whether the trace has MCP servers."""
    listed: Any = None
    """In later ticks: their tools, as the first tick listed them (agents/mcp_tools.py)."""

    @property
    def settings(self) -> Settings:
        """The settings of the block at the cursor."""
        start, index = self.cursor.start, self.cursor.index
        inherited = zip(start.inherited, self.inherited, strict=True)
        return next((settings for entry, settings in inherited if index < entry.until), self.newest)

    @property
    def number(self) -> int:
        """Number of the tick. Tick 0 records the bootstrap or the task."""
        return self.cursor.start.tick

    @property
    def subagent(self) -> str:
        """Name of the subagent that the tick belongs to."""
        return self.cursor.start.subagent

    def append(self, draft: Append) -> Block:
        """Record a block. It is stored in the transaction that advances the journal."""
        return self.cursor.append(msgspec.structs.replace(draft, tags=draft.tags + self.tags) if self.tags else draft)

    def say(self, type: BlockType, text: str, tools: str | None = None) -> Block:
        """Record a block that has only a text, such as a message that the model did not write. `tools`: see Append."""
        return self.append(Append(type=type, body=text, tools=tools))

    def emit(self, effect: Effect) -> None:
        """Record an effect other than a block. It is stored in the same transaction."""
        self.cursor.emit(effect)

    def execute(self, op: Op, type: BlockType | None = None, source: str = "") -> Execute:
        """A step in the trace's environment, for this subagent."""
        return Execute(op=op, subagent=self.subagent, type=type, source=source)

    def sample(self, prompt: Prompt, settings: BlockSettings, purpose: str, n: int, **fields: Any) -> Sample:
        """A step that samples `n` continuations under `settings`. `purpose`: see `seed`; `fields`: of `Sample`."""
        return Sample(
            prompt=prompt,
            n=n,
            temperature=settings.temperature,
            top_k=settings.top_k,
            repetition_penalty=settings.repetition_penalty,
            seed=self.seed(purpose),
            **fields,
        )

    def seed(self, purpose: str) -> int:
        """A seed that depends on the trace's seed, the tick, the number of steps so far, and `purpose`."""
        seed, _ = self.cursor.start.seed_and_lag(self.cursor.index)
        return derive_seed(seed, self.number, self.cursor.ordinal, purpose)


@dataclass(frozen=True)
class Agent:
    """A program that writes traces, and the input that it takes."""

    program: Callable[[Tick], Program]
    task: type[msgspec.Struct] | None = None
    """Form of its tasks, which are JSON. None: it takes only bootstrap files."""
    bootstraps: bool = True
    """Whether it takes bootstrap files."""
