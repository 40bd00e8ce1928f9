"""What both searches do again and again: sample candidates for a block, lint them, have the model score them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from weavegen.agents.program import Part, Tick
from weavegen.kernel.selection import log_odds, penalised
from weavegen.kernel.settings import BlockSettings
from weavegen.kernel.steps import Candidate, Lint, Penalties, Prompt, Sample, Score, Verdict, YesNo
from weavegen.trace.blocks import BlockType

Line: TypeAlias = tuple[float, float]
"""A correction of log odds: slope and intercept."""


@dataclass(frozen=True)
class BlockRequest:
    """A block to be written."""

    type: BlockType
    s: BlockSettings
    """Those of its type."""
    tokens: int
    """That it may have."""
    questions: tuple[str, ...]
    after_debug: bool = False


@dataclass(frozen=True)
class ScoredCandidate:
    """A candidate, or in a tree the text down to one of its nodes, and what was found out about it."""

    at: tuple[int, int]
    """(ordinal of its Sample step, position)."""
    candidate: Candidate
    verdict: Verdict
    answers: list[YesNo]
    depth: int
    tokens: int
    """Sampled for the whole of its text."""
    cut: bool
    """It ends where its tokens did, and the block may have more."""
    lines: tuple[Line | None, ...] = ()
    """Of each question, how its log odds are corrected for selection; none where none of them is."""

    @cached_property
    def score(self) -> float:
        """For selection, as it stands. Log odds."""
        return penalised(compared(self.answers, self.lines), self.verdict.penalties)

    @cached_property
    def promise(self) -> float:
        """The score of a half-written text: less only what no continuation makes good again."""
        syntax = 2.0 if self.verdict.viable is False else 0.0
        length = self.verdict.penalties.length_after_debug
        return penalised(compared(self.answers, self.lines), Penalties(syntax=syntax, length_after_debug=length))


def compared(answers: Sequence[YesNo], lines: Sequence[Line | None]) -> float | None:
    """Mean log odds over the questions, each corrected by its line; None where none has a defined score."""
    scores = []
    for number, answer in enumerate(answers):
        score = log_odds(answer)
        if score is not None:
            line = lines[number] if lines else None
            scores.append(score if line is None else score * line[0] + line[1])
    return sum(scores) / len(scores) if scores else None


def sample(
    t: Tick,
    wanted: BlockRequest,
    prompt: Prompt,
    n: int,
    round: int,
    *,
    of_tree: bool = False,
    parent: ScoredCandidate | None = None,
) -> Part[list[ScoredCandidate]]:
    """`n` candidates, linted and scored; of a tree, nodes that go on from `parent`, or from the prompt."""
    s = wanted.s
    before, depth = (parent.tokens, parent.depth + 1) if parent is not None else (0, int(of_tree))
    ordinal, most = t.cursor.ordinal, min(s.tree_tokens, wanted.tokens - before) if of_tree else wanted.tokens
    candidates: list[Candidate] = yield Sample(
        prompt=prompt,
        parent=None if parent is None else parent.at,
        depth=depth,
        n=n,
        round=round,
        max_tokens=most,
        temperature=s.temperature,
        top_k=s.top_k,
        repetition_penalty=s.repetition_penalty,
        seed=t.seed("sample"),
    )
    verdicts: list[Verdict]
    answers: list[list[YesNo]]
    verdicts, answers = yield (
        Lint(
            type=wanted.type, sample=ordinal, after_debug=wanted.after_debug, linting=s.linting,
            pieces=of_tree, before=before,
        ),
        Score(prompt=prompt, questions=wanted.questions, sample=ordinal),
    )  # fmt: skip
    corrections = t.settings.corrections
    lines = tuple(map(corrections.get, wanted.questions)) if corrections else ()
    found = []
    for position, (candidate, verdict, answer) in enumerate(zip(candidates, verdicts, answers, strict=True)):
        full = candidate.finish_reason == "length"
        tokens = before + (most if full else candidate.tokens)
        found.append(
            ScoredCandidate(
                (ordinal, position),
                candidate,
                verdict,
                answer,
                depth,
                tokens,
                full and tokens < wanted.tokens,
                lines,
            )
        )
    return found
