"""A world whose results the test chooses: candidates, scores, and results of execution."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tests.support.world import Trace, World
from weavegen.agents import AGENTS, Tick
from weavegen.kernel.replay import Cursor, Entry, replay
from weavegen.kernel.settings import settings
from weavegen.kernel.steps import (
    Append,
    Candidate,
    Evaluated,
    Execute,
    Executed,
    Failure,
    Hit,
    Lint,
    Op,
    Retrieve,
    Sample,
    Score,
    Step,
    SubagentState,
    View,
    YesNo,
)
from weavegen.linting.lint import verdict
from weavegen.sandbox.client_session import Ask, undecided
from weavegen.sandbox.environment import Environment
from weavegen.trace.blocks import BlockType

T = BlockType
GOOD = {
    T.ORIENTATION: '"""I look around."""',
    T.ACTION: 'def action_go(self):\n    assert go(), "Did it go?"\nself.add_action("Go", action_go)',
    T.EXPECTATION: '"""It has gone."""',
    T.OBSERVATION_INFERENCE: 'self.remove_observation_view("Desk")',
    T.EVALUATION: 'def eval_gone(self):\n    return gone()\nself.add_evaluation("Is it gone?", eval_gone)',
    T.DEBUG: '"""It was locked."""',
    T.BACKTRACK: '"""Not that way."""',
}
"""A legal block of each type that the model writes."""
MAIN = SubagentState(name="main", parent=None, description="Find the key.", schema={}, time_budget=360.0)
FAILURE = Failure(type="KeyError", message="'key'", traceback="Traceback ...\nKeyError: 'key'", stage="callback")
S = TypeVar("S", bound=Step)


class Script(World):
    """Without arguments every step succeeds.

    `text` and `odds` are functions of a candidate: its Sample step and its position. `raw` is the log odds of a
    rewritten text, `option` the log odds of yes to the option, `runs` the results of executed blocks, in order.
    """

    def __init__(
        self,
        *,
        seed: int = 1,
        text: Callable[[Sample, int], str | Candidate] = lambda step, at: GOOD[step.prompt.type],
        odds: Callable[[Sample, int], float] = lambda step, at: 3.0,
        raw: float = 3.0,
        option: float = -20.0,
        runs: Sequence[Executed] = (),
        views: Sequence[View] = (),
        evaluations: Sequence[Evaluated] = (),
        subagents: Sequence[SubagentState] = (MAIN,),
        queries: Sequence[str] = ("key door",),
        hits: Sequence[Hit] = (),
    ) -> None:
        super().__init__(seed)
        self.text, self.odds, self.raw, self.option = text, odds, raw, option
        self.runs = list(runs)
        self.views, self.evaluations, self.subagents = tuple(views), tuple(evaluations), tuple(subagents)
        self.queries, self.hits = queries, hits

    def answer(self, step: Step, journal: list[Entry]) -> Any:
        if isinstance(step, Sample):
            return [self.candidate(step, at) for at in range(step.n)]
        if isinstance(step, Lint):
            candidates = journal[step.sample].result
            return [
                verdict(step, candidate.text, candidate.tokens, cut=candidate.finish_reason == "length")
                for candidate in candidates
            ]
        if isinstance(step, Score):
            if step.sample is not None:
                sampled = journal[step.sample].step
                assert isinstance(sampled, Sample)
                return [[yes_no(self.odds(sampled, at))] * len(step.questions) for at in range(sampled.n)]
            return [[yes_no(self.option if step.candidate is None else self.raw)] * len(step.questions)]
        if isinstance(step, Retrieve):
            return list(self.hits[: step.limit])
        assert isinstance(step, Execute)
        return self.executed(step)

    def candidate(self, step: Sample, at: int) -> Candidate:
        text = self.queries[at % len(self.queries)] if step.prompt.query else self.text(step, at)
        return text if isinstance(text, Candidate) else Candidate(text=text, finish_reason="stop", tokens=20)

    def executed(self, step: Execute) -> Executed:
        if step.op == "begin":
            return Executed(views=self.views, subagents=self.subagents)
        if step.op == "evaluate":
            return Executed(evaluations=self.evaluations, subagents=self.subagents)
        return self.runs.pop(0) if self.runs else Executed(registered=("Go",), subagents=self.subagents)


class Trials(Script):
    """Trials of actions, or blocks of another type, have these results, in order. No other block is tried."""

    trials: list[Executed]
    of = T.ACTION

    def executed(self, step: Execute) -> Executed:
        if step.op != "try":
            return super().executed(step)
        if step.type is not self.of:
            return Executed(not_tried="it is of another type")
        return Executed(trials=tuple(self.trials.pop(0) for _ in step.candidates))


def yes_no(odds: float) -> YesNo:
    yes = 1 / (1 + math.exp(-odds))
    return YesNo(yes=yes, no=1 - yes)


def tick(number: int = 1, s: dict[str, Any] | None = None, blocks: int = 3, **answers: Any) -> Trace:
    """Run one whole tick of a trace that has `blocks` blocks before it."""
    trace = Trace(Script(**answers), number, settings(s or {}))
    if number:
        trace.start = replace(trace.start, blocks=blocks)
    return trace.run()


def types(trace: Trace) -> list[BlockType]:
    return [block.type for block in trace.blocks]


def steps(trace: Trace, kind: type[S]) -> list[S]:
    """The steps of one kind, in order."""
    return [entry.step for entry in trace.journal if isinstance(entry.step, kind)]


def drafts(trace: Trace, type: BlockType) -> list[Append]:
    """The Append effects of blocks of a type, with their scores, which blocks do not contain."""
    cursor = Cursor(trace.start)
    replay(AGENTS[trace.agent].program(Tick(trace.settings, cursor)), cursor, trace.journal)
    return [draft for draft, block in cursor.recorded if block.type is type]


def samples(trace: Trace, type: BlockType) -> list[Sample]:
    """The rounds in which blocks of a type were sampled."""
    return [step for step in steps(trace, Sample) if step.prompt.type is type and not step.prompt.query]


def queries(trace: Trace, type: BlockType) -> list[Sample]:
    """The rounds in which queries were sampled."""
    return [step for step in steps(trace, Sample) if step.prompt.type is type and step.prompt.query]


def odds_for(type: BlockType, value: float, others: float = 3.0) -> Callable[[Sample, int], float]:
    """Log odds: `value` for blocks of one type, `others` for all other blocks."""
    return lambda step, at: value if step.prompt.type is type else others


def writes(type: BlockType, text: str | Candidate) -> Callable[[Sample, int], str | Candidate]:
    """Texts: `text` for blocks of one type, a good text for all other blocks."""
    return lambda step, at: text if step.prompt.type is type else GOOD[step.prompt.type]


step_ids = itertools.count(1)


def execute(
    environment: Environment, op: Op, source: str = "", type: BlockType | None = None, ask: Ask = undecided
) -> Executed:
    """Execute one operation in a real environment. `ask` answers the questions of callbacks to the model."""
    return environment.execute(next(step_ids), Execute(op=op, source=source, type=type), ask=ask)
