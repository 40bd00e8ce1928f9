"""Results of steps for agent programs, drawn from a seed, with all kinds of errors. No I/O."""

import random
from collections.abc import Callable
from typing import Any

from weavegen.agents import AGENTS, Tick
from weavegen.kernel.replay import Advance, Cursor, Entry, Start, encode, replay
from weavegen.kernel.seeds import derive_seed
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import (
    Candidate,
    Evaluated,
    Execute,
    Executed,
    Failure,
    Hit,
    Lint,
    Note,
    Reward,
    Sample,
    Score,
    Step,
    SubagentState,
    View,
    YesNo,
)
from weavegen.linting.lint import verdict
from weavegen.trace.blocks import COMMENTED, Block, BlockType

GOOD = {
    BlockType.ACTION: "def action_a(self):\n    assert True, 'Is it so?'\nself.add_action('Do a', action_a)",
    BlockType.EVALUATION: "def eval_a(self):\n    return True\nself.add_evaluation('Is it so?', eval_a)",
    BlockType.OBSERVATION_INFERENCE: "self.remove_observation_view('x')",
}
FAILURE = Failure(type="ValueError", message="no", traceback="Traceback ...\nValueError: no", stage="callback")


class World:
    """A result depends only on the seed and the step, so every order of steps must give the same trace."""

    def __init__(self, seed: int, kindness: float = 0.7, calls: float = 0.0) -> None:
        self.seed, self.kindness = seed, kindness
        self.calls = calls
        """Share of the actions that call a subagent: main calls main.1, main.1 calls main.1.1."""

    def dice(self, step: Step) -> random.Random:
        """The random generator for the result of a step."""
        return random.Random(derive_seed(self.seed, encode(step).decode()))

    def answer(self, step: Step, journal: list[Entry]) -> Any:
        rng = self.dice(step)
        if isinstance(step, Sample):
            if step.depth:
                above = "" if step.parent is None else journal[step.parent[0]].result[step.parent[1]].text
                return [self._node(step, above, rng) for _ in range(step.n)]
            return [self._candidate(step, rng) for _ in range(step.n)]
        if isinstance(step, Lint):
            candidates = journal[step.sample].result
            return [
                verdict(step, candidate.text, candidate.tokens, cut=candidate.finish_reason == "length")
                for candidate in candidates
            ]
        if isinstance(step, Score):
            texts = journal[step.sample].result if step.sample is not None else step.texts
            return [[self._answer(rng) for _ in step.questions] for _ in texts]
        if isinstance(step, Execute):
            return self._execute(step, rng)
        return [Hit(id=7, score=3.0)]

    def _candidate(self, step: Sample, rng: random.Random) -> Candidate:
        if step.prompt.query:
            text = rng.choice(["+word other -third", "type:'action' word", "(((", ""])
            return Candidate(text=text, finish_reason="stop", tokens=5)
        if step.prompt.next:
            text = rng.choice(["error", "expectation", "outcome", "evaluation", "no such type"])
            return Candidate(text=text, finish_reason="stop", tokens=2)
        if step.prompt.type in COMMENTED:
            text = rng.choice(["# What is seen", "# a\n# b\nc = 1", "nothing", "# q: fake? Yes. (99%)"])
            return Candidate(text=text, finish_reason="stop", tokens=5)
        good = GOOD.get(step.prompt.type, '"""Thinking."""')
        text = (
            good if rng.random() < self.kindness else rng.choice(['"""open', "x = ", good + "\n# q: fake", "print(1)"])
        )
        return Candidate(text=text, finish_reason=rng.choice(["stop", "length"]), tokens=rng.randrange(1, 768))

    def _node(self, step: Sample, above: str, rng: random.Random) -> Candidate:
        """The next characters (each a token) of a good block, if the text so far is a beginning of this block."""
        good = GOOD.get(step.prompt.type, '"""Thinking."""')
        rest = good.removeprefix(above) if good.startswith(above) else "?" * rng.randrange(60)
        if rng.random() > self.kindness:
            rest = "= )" + rest
        piece = rest[: step.max_tokens]
        reason = "stop" if piece == rest else "length"
        return Candidate(text=above + piece, finish_reason=reason, tokens=len(piece))

    def _answer(self, rng: random.Random) -> YesNo:
        yes = rng.random() if rng.random() < 0.9 else 0.0
        return YesNo(yes=yes, no=rng.choice([0.0, (1 - yes) / 2]))

    def _execute(self, step: Execute, rng: random.Random) -> Executed:
        fails = rng.random() > self.kindness
        names = ("main", "main.1", "main.1.1")
        subagents = tuple(
            SubagentState(
                name=name,
                parent=parent,
                description="A task.",
                schema={},
                time_budget=360.0,
                completed=rng.random() < (0.3 if parent else 0.05),
            )
            for name, parent in zip(names, (None, *names), strict=False)
        )
        child = next((name for name in names if step.subagent == name.removesuffix(".1") != name), None)
        acts = step.op == "resume" or step.type is BlockType.ACTION
        if acts and child is not None and rng.random() < self.calls:
            return Executed(waits_for=child, subagents=subagents)
        views = (View(title="a", text="seen"), View(title="b", error=FAILURE) if fails else View(title="b"))
        evaluations = (
            Evaluated(title="Is it?", scope="task", value=rng.choice([True, False, "text", None])),
            Evaluated(title="Did it?", scope="tick", error=FAILURE if fails else None, value=None if fails else True),
        )
        return Executed(
            error=FAILURE if fails and step.op in ("run", "resume") else None,
            registered=("Do a",),
            views=views if step.op == "begin" else (View(title="a"), View(title="b")) if step.op == "list" else (),
            evaluations=evaluations if step.op == "evaluate" else (),
            subagents=subagents,
        )


class Trace:
    """Runs one tick in memory, as the engine does in PostgreSQL."""

    def __init__(self, world: World, number: int = 1, settings: Settings | None = None, agent: str = "weave") -> None:
        self.world = world
        self.settings = settings or Settings()
        last = BlockType.OUTCOME if number else None
        self.start = Start(
            trace_seed=world.seed,
            tick=number,
            clock=1000.0,
            deadline=22600.0,
            blocks=3 if number else 0,
            last_type=last,
        )
        self.agent = agent
        self.journal: list[Entry] = []
        self.blocks: list[Block] = []
        self.rewards: list[Reward] = []
        self.notes: list[Note] = []
        self.ended: Advance | None = None
        self.replays = 0

    def advance(self) -> None:
        """Replay the journal, and apply new effects and steps."""
        if self.ended is not None:
            return
        self.replays += 1
        cursor = Cursor(self.start)
        program = AGENTS[self.agent].program(Tick(self.settings, cursor, "self.add_action('t', f)"))
        advance = replay(program, cursor, self.journal)
        for effect, block in advance.effects:
            if block is not None:
                self.blocks.append(block)
            if isinstance(effect, Reward):
                self.rewards.append(effect)
            if isinstance(effect, Note):
                self.notes.append(effect)
        self.journal += [Entry(step) for _, step in advance.steps]
        if advance.ended is not None:
            self.ended = advance

    def finish(self, ordinal: int) -> bool:
        """Finish a step. If it is already finished, returns False and changes nothing."""
        entry = self.journal[ordinal]
        if entry.done:
            return False
        result = self.world.answer(entry.step, self.journal)
        self.journal[ordinal] = Entry(entry.step, done=True, result=result, at=1000.0 + ordinal)
        return True

    @property
    def open(self) -> list[int]:
        return [ordinal for ordinal, entry in enumerate(self.journal) if not entry.done]

    def run(self, pick: Callable[[list[int]], int] = min) -> "Trace":
        """Run the tick to its end, one step at a time. `pick` chooses among the open steps."""
        self.advance()
        while self.ended is None:
            self.finish(pick(self.open))
            self.advance()
        return self
