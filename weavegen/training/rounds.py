"""The rounds of `weavegen improve`: what is recorded of each, which model is the best, and when to stop.

All of it is one file, `state.json`, which is replaced whole: after a kill it says which phases are complete.
"""

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from weavegen.errors import UsageError
from weavegen.evaluator.evaluation import Evaluation, Measure, share
from weavegen.training.plan import TunePlan

STATE = "state.json"
ADAPTER = "adapter"
"""In a round's folder: what was trained. It has this name only when it is complete."""


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a loop was started with. A loop that is continued must have the same."""

    files: list[str]
    params: dict[str, Any]
    settings: dict[str, Any]
    """Settings of all jobs."""
    writing: dict[str, Any]
    """Of the jobs that write traces to learn from; they override `settings`."""
    traces: int
    """Traces of each file in a round."""
    held_out: int
    """Traces of each file in each of the two jobs of an evaluation."""
    seed: int
    where: list[str]
    all_traces: bool = False
    """Imitate blocks of all traces; False: only of those that succeeded."""
    tune: TunePlan
    """Without `data` and `out`."""


class Round(msgspec.Struct, kw_only=True):
    """A round, as far as it has come. Round 0 has no training: it is the evaluation of the base."""

    number: int
    writer: int | None = None
    """The round whose model wrote the traces."""
    jobs: dict[str, int] = {}
    """Numbers of the jobs by what they do: write, selected, unaided."""
    rows: dict[str, int] = {}
    """Rows of each export that was trained on."""
    losses: dict[str, float] = {}
    evaluation: Evaluation | None = None
    corrections: dict[str, tuple[float, float]] = {}
    """Corrections of the judge's log odds; they are used when this round's model writes traces."""
    brier: float | None = None
    """Brier score with these corrections, cross-validated; None: there were too few labels for corrections."""
    auc: float | None = None
    """How well its answers to "will it run?" rank the actions that the base executed; None: unknown."""
    best: bool = False
    """Whether its model was the best one after the round."""
    seconds: dict[str, float] = {}
    """Duration of each phase: write, train, evaluate. For a phase that was killed: since it was resumed."""


class Loop(msgspec.Struct, kw_only=True):
    """The state of a loop."""

    name: str
    """Unique: names of jobs and of served models begin with it."""
    order: Order
    rounds: list[Round] = []

    def best(self) -> Round:
        """The round whose model is the best so far. Before the first evaluation that is round 0."""
        return next((round for round in reversed(self.rounds) if round.best), self.rounds[0])

    def judge(self, round: Round) -> None:
        """Decide whether a round that was evaluated has the best model.

        It has if the lower end of its success's 95% interval is at least that of the best so far. So of two with
        equally many traces the one with more successes is kept, and of two with equal shares the later one. Where no
        task has evaluations the first model is kept.
        """
        known = [other for other in self.rounds if other.best and other is not round]
        own = success(round)
        round.best = not known or (own.of > 0 and own.low >= success(known[-1]).low)

    def over(self, rounds: int, patience: int) -> str | None:
        """Why no further round begins; None: one does."""
        last = self.rounds[-1].number if self.rounds else 0
        if last >= rounds:
            return f"{last} rounds are done"
        if self.rounds and last - self.best().number >= patience:
            return f"{patience} rounds in a row have not improved on round {self.best().number}"
        return None


def successes(evaluation: Evaluation | None, unaided: bool = False) -> list[bool]:
    """The outcomes of the held-out traces of all files."""
    measures = (evaluation.unaided_success if unaided else evaluation.success).values() if evaluation else ()
    return [n + 0.5 < measure.value * measure.of for measure in measures for n in range(measure.of)]


def success(round: Round, unaided: bool = False) -> Measure:
    """The share of held-out traces that succeeded, over all files, with Wilson's interval."""
    return share(successes(round.evaluation, unaided))


def load(folder: Path) -> Loop | None:
    """The state of a loop; None if none was begun there. Raises UsageError."""
    try:
        return msgspec.convert(json.loads((folder / STATE).read_text()), Loop, strict=False)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise UsageError(f"{folder / STATE} can't be read ({error}): give another --out") from None


def save(folder: Path, loop: Loop) -> None:
    """Replace the state."""
    draft = folder / f".{STATE}"
    with draft.open("w") as file:
        json.dump(msgspec.to_builtins(loop), file, indent=1)  # shares of nothing are NaN, which msgspec does not write
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / STATE)


def differences(begun: Order, given: Order) -> list[str]:
    """Names of the values in which two orders differ."""
    before, after = (json.loads(json.dumps(msgspec.to_builtins(order))) for order in (begun, given))
    for order in (before, after):
        order |= order.pop("tune")
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
