"""The loop body of both searches: sample candidates for a block, lint them, have the model score them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from weavegen.agents.program import Part, Tick
from weavegen.kernel import prompts
from weavegen.kernel.selection import Line, achieved, draw, furthest, mean_score, penalised
from weavegen.kernel.settings import BlockSettings
from weavegen.kernel.steps import Candidate, Execute, Executed, Lint, Note, Penalties, Prompt, Score, Verdict, YesNo
from weavegen.trace.blocks import BlockType


@dataclass
class BlockRequest:
    """A block to write."""

    type: BlockType
    settings: BlockSettings
    """The settings of its type."""
    max_tokens: int
    questions: tuple[str, ...]
    hint: str = ""
    """Added to the instruction."""
    after_debug: bool = False
    tries: bool = False
    """Whether the best candidates are tried. False once there could be no copy of the environment."""


@dataclass(frozen=True)
class ScoredCandidate:
    """A candidate with its verdict and scores. In a tree: the text from the root to one of the nodes."""

    position: tuple[int, int]
    """(ordinal of its Sample step, position in the result)."""
    candidate: Candidate
    verdict: Verdict
    answers: list[YesNo]
    depth: int
    """Depth in the tree, from 1. 0: it is a whole candidate."""
    tokens: int
    """Sampled tokens of the whole text."""
    unfinished: bool
    """Whether its token limit cut it off and the block may have more tokens."""
    corrections: tuple[Line | None, ...] = ()
    """For each question: the correction of its log odds. Empty: no corrections."""
    trial: Executed | None = None
    """The result of its trial; None: it was not tried."""

    @cached_property
    def score(self) -> float:
        """Log odds for selection, less all penalties."""
        return penalised(mean_score(self.answers, self.corrections), self.verdict.penalties)

    @property
    def ran(self) -> bool | None:
        """Whether it ran without errors when it was tried; None: it was not tried."""
        return None if self.trial is None or self.trial.not_tried is not None else self.trial.error is None

    @property
    def achieved(self) -> float:
        """How far it got when it was tried."""
        trial = self.trial or Executed()
        checks = [one.value is True for one in trial.evaluations if one.scope == "task"]
        held = [one.answer for one in trial.assertions]
        held += [one.error is None for one in trial.evaluations if one.scope == "tick"]
        return achieved(self.ran, self.verdict.compiles, checks, all(held))

    def succeeded(self, subagent: str) -> bool:
        """Whether it ran when it was tried, is sound, and left as many of the task's evaluations true as the last tick.

        Nothing more is asked of it: before the end of a task, an evaluation such as "Did we win?" can't be true.
        """
        trial = self.trial or Executed()
        states = [state for state in trial.subagents if state.name == subagent]
        before = {one.title for state in states for one in state.evaluations if one.value is True}
        after = [one for one in trial.evaluations if one.scope == "task"]
        kept = sum(one.value is True for one in after) >= sum(one.title in before for one in after)
        return self.achieved >= 2.0 and kept

    @cached_property
    def promise(self) -> float:
        """The score of an unfinished text: log odds, less only the penalties that no continuation can remove."""
        syntax = 2.0 if self.verdict.viable is False else 0.0
        penalties = Penalties(syntax=syntax, length_after_debug=self.verdict.penalties.length_after_debug)
        return penalised(mean_score(self.answers, self.corrections), penalties)


def sample(
    t: Tick,
    request: BlockRequest,
    prompt: Prompt,
    n: int,
    round: int,
    *,
    of_tree: bool = False,
    parent: ScoredCandidate | None = None,
) -> Part[list[ScoredCandidate]]:
    """Sample `n` candidates, lint and score them. Nodes of a tree continue `parent`; without it, the prompt."""
    s = request.settings
    tokens_above, depth = (parent.tokens, parent.depth + 1) if parent is not None else (0, int(of_tree))
    max_tokens = min(s.tree_tokens, request.max_tokens - tokens_above) if of_tree else request.max_tokens
    ordinal = t.cursor.ordinal
    above = None if parent is None else parent.position
    candidates: list[Candidate] = yield t.sample(
        prompt, s, "sample", n, round=round, max_tokens=max_tokens, parent=above, depth=depth
    )
    verdicts: list[Verdict]
    answers: list[list[YesNo]]
    verdicts, answers = yield (
        Lint(
            type=request.type, sample=ordinal, after_debug=request.after_debug, linting=s.linting,
            pieces=of_tree, before=tokens_above,
        ),
        Score(prompt=prompt, questions=request.questions, sample=ordinal),
    )  # fmt: skip
    by_question = t.settings.corrections
    corrections = tuple(by_question.get(prompts.question_of(one)) for one in request.questions) if by_question else ()
    scored = []
    for position, (candidate, verdict, answer) in enumerate(zip(candidates, verdicts, answers, strict=True)):
        cut_off = candidate.finish_reason == "length"
        tokens = tokens_above + (max_tokens if cut_off else candidate.tokens)
        unfinished = cut_off and tokens < request.max_tokens
        scored.append(
            ScoredCandidate((ordinal, position), candidate, verdict, answer, depth, tokens, unfinished, corrections)
        )
    return scored


def try_best(t: Tick, request: BlockRequest, candidates: Sequence[ScoredCandidate]) -> Part[list[ScoredCandidate]]:
    """All candidates. If the request says so, the best that compile are tried in copies of the environment."""
    best = sorted((one for one in candidates if request.tries and one.verdict.compiles), key=lambda one: -one.score)
    best = best[: request.settings.trials]
    if not best:
        return list(candidates)
    places = tuple(one.position for one in best)
    done: Executed = yield Execute(op="try", subagent=t.subagent, type=request.type, candidates=places)
    if done.not_tried is not None:
        t.emit(Note(kind="not tried", detail=f"a block of type {request.type}: {done.not_tried}"))
        request.tries = False  # nothing really runs before the block is written
    results = dict(zip(places, done.trials, strict=False))
    return [replace(one, trial=results.get(one.position)) for one in candidates]


def drawn(t: Tick, candidates: Sequence[ScoredCandidate]) -> ScoredCandidate:
    """One of the candidates, by softmax(score); if some were tried, among those that got furthest."""
    candidates = furthest(candidates)
    return candidates[draw([candidate.score for candidate in candidates], t.seed("draw"))]
