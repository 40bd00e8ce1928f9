"""Runs conversing agents in memory, tick by tick, as the engine does with PostgreSQL."""

from collections.abc import Callable
from typing import Any

import msgspec

from weavegen.agents import AGENTS, Tick
from weavegen.errors import RolloutError
from weavegen.kernel.replay import Cursor, Entry, Start, replay
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import Append, Candidate, Effect, Ended, Sample, Step
from weavegen.trace.blocks import MESSAGE, Block

Answer = Callable[[Step], Any]
"""Returns the result of a step: for Sample, a text or a list of candidates. A RolloutError is a failure."""


class Talk:
    """A trace of a conversing agent. The function `answer` gives the result of every step."""

    def __init__(self, agent: str, task: dict[str, Any] | str, answer: Answer, **settings: Any) -> None:
        self.agent, self.answer = agent, answer
        self.source = task if isinstance(task, str) else msgspec.json.encode(task).decode()
        self.settings = Settings(**settings)
        self.blocks: list[Block] = []
        self.drafts: list[Append] = []
        self.effects: list[Effect] = []
        """Effects other than blocks."""
        self.steps: list[Step] = []
        self.states: list[Any] = []
        """The state that each tick passed to the next one."""
        self.ended: Ended | None = None

    def run(self, most: int = 500) -> Ended:
        """Run all ticks."""
        state: Any = None
        for number in range(most):
            ended = self.tick(number, state)
            if ended.done:
                self.ended = ended
                return ended
            state = msgspec.json.decode(msgspec.json.encode(ended.state))  # as the database would return it
            self.states.append(state)
        raise AssertionError(f"the trace has not ended after {most} ticks")

    def tick(self, number: int, state: Any) -> Ended:
        """Run one tick, and replay it after every step: all replays must request the same steps."""
        before = len(self.blocks)
        start = Start(
            trace_seed=7,
            tick=number,
            clock=1000.0 + number,
            deadline=22600.0,
            blocks=before,
            last_type=self.blocks[-1].type if self.blocks else None,
            state=state,
        )
        journal: list[Entry] = []
        while True:
            cursor = Cursor(start)
            program = AGENTS[self.agent].program(Tick(self.settings, cursor, self.source))
            advance = replay(program, cursor, journal)
            for effect, block in advance.effects:
                if isinstance(effect, Append):
                    assert block is not None
                    self.drafts.append(effect)
                    self.blocks.append(block)
                else:
                    self.effects.append(effect)
            if advance.ended is not None:
                return advance.ended
            assert advance.steps
            for ordinal, step in advance.steps:
                self.steps.append(step)
                journal.append(self.entry(step, 1000.0 + number + ordinal / 100))

    def entry(self, step: Step, at: float) -> Entry:
        """The journal entry of a finished step."""
        try:
            result = self.answer(step)
        except RolloutError as error:
            return Entry(step, done=True, failure=error, at=at)
        if isinstance(step, Sample) and isinstance(result, str):
            result = [reply(result)] * step.n
        return Entry(step, done=True, result=result, at=at)

    @property
    def messages(self) -> list[tuple[str, str]]:
        """(role, text) of the messages."""
        return [(str(block.type), block.body) for block in self.blocks if block.type in MESSAGE]


def reply(text: str, prompt_tokens: int | None = 100, length: int | None = 32_768) -> Candidate:
    """A candidate for the assistant's next message."""
    tokens = max(1, len(text) // 4)
    return Candidate(text=text, finish_reason="stop", tokens=tokens, prompt_tokens=prompt_tokens, length=length)
