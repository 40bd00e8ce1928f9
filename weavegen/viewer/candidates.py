"""The candidates of a block, and why each was chosen or rejected. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from weavegen.kernel.selection import achieved, furthest, penalised
from weavegen.kernel.steps import Penalties
from weavegen.viewer.rendering import MINUS, percent
from weavegen.viewer.traces import PENALTIES, Answer


@dataclass
class Candidate:
    """A sampled text."""

    id: int
    run: int
    """Number of the tick's run."""
    round: int
    depth: int | None
    """Depth of a node in its search tree. None for a whole candidate."""
    parent: int | None
    position: int
    text: str
    tokens: int
    finish_reason: str
    chosen: bool
    answers: list[Answer]
    linted: dict[str, Any]
    """As in traces.penalties. Empty if the text was not linted."""
    trial: dict[str, Any] = field(default_factory=dict)
    """Its row of the table trials, and whether it is `sound`. Empty if it was not tried."""
    annotations: list[dict[str, Any]] | None = None
    """What people say about it."""
    share: float | None = None
    """Probability in the draw from its round. None if nothing was drawn from the round."""
    reason: str = ""
    """Why it was chosen or rejected."""
    children: list["Candidate"] = field(default_factory=list)
    text_above: str = ""
    """Of a node: the text of its parent."""
    on_path: bool = False
    """Of a node: the block was grown from it."""

    @property
    def own_text(self) -> str:
        """The text without that of its parent."""
        return self.text.removeprefix(self.text_above)

    @property
    def questions(self) -> list[Answer]:
        """The answers that the selection used."""
        return [answer for answer in self.answers if answer.stage == "selection"]

    @property
    def score(self) -> float | None:
        """Mean log odds of the answers. None if there are none."""
        scores = [answer.score for answer in self.questions if answer.score is not None]
        return sum(scores) / len(scores) if scores else None

    @property
    def half_written(self) -> bool:
        """Whether it is a node that reached its token limit, so that other nodes continue it."""
        return self.linted.get("viable") is not None

    @property
    def held(self) -> dict[str, float]:
        """The penalties that the selection counted: for a half-written node those that no continuation removes."""
        held: dict[str, float] = self.linted.get("held", {})
        if not self.half_written:
            return held
        kept = {name: value for name, value in held.items() if name == "length_after_debug"}
        return kept if self.linted["viable"] else {"syntax": 2.0, **kept}

    @property
    def illegal(self) -> bool:
        """Whether it does not compile; for a half-written node, whether no continuation compiles."""
        return self.linted["viable"] is False if self.half_written else self.linted.get("compiles") is False

    @property
    def ran(self) -> bool | None:
        """Whether it ran without errors when it was tried; None: it was not tried."""
        return self.trial.get("ran")

    @property
    def achieved(self) -> float:
        """How far it got when it was tried."""
        checks = [one["value"] is True for one in self.trial.get("evaluations", ()) if one["scope"] == "task"]
        return achieved(self.ran, not self.illegal, checks, self.trial.get("sound", True))

    @property
    def selection(self) -> float | None:
        """Score less penalties, as the selection used it, but without corrections of questions."""
        if (self.questions and self.score is None) or not (self.questions or self.linted):
            return None
        return penalised(self.score or 0.0, Penalties(**self.held))


@dataclass(frozen=True)
class Round:
    """Candidates that were sampled together."""

    run: int
    number: int
    tree: bool
    candidates: list[Candidate]
    """The chosen one first, then by score."""
    verdict: str
    """The result of the round, in words."""


def rounds(sampled: Sequence[Candidate]) -> list[Round]:
    """The candidates by round, the round of the chosen one first. Sets `share` and `reason` of each candidate."""
    groups: dict[tuple[int, int, bool], list[Candidate]] = {}
    for candidate in sampled:
        groups.setdefault((candidate.run, candidate.round, candidate.depth is not None), []).append(candidate)
    chosen = next((candidate for candidate in sampled if candidate.chosen), None)
    for (_, _, is_tree), members in groups.items():
        if not is_tree and chosen in members:
            set_shares(members)
        for candidate in members:
            candidate.reason = reason(candidate, chosen, len(members))
        members.sort(key=lambda candidate: (not candidate.chosen, -_selection(candidate)))
    result = [Round(*key, members, verdict(members, chosen, key[2])) for key, members in groups.items()]
    return sorted(result, key=lambda round: (-round.run, chosen not in round.candidates, -round.number))


def verdict(members: list[Candidate], chosen: Candidate | None, is_tree: bool) -> str:
    """The result of a round, in words."""
    if is_tree:
        return "Nodes of a tree search; the tree is below"
    if chosen is None:
        return "The block is not recorded yet"
    if chosen in members:
        were_tried = any(one.ran is not None for one in members)
        among = ", among those that got furthest when they were tried" if were_tried else ""
        how = f"The block was drawn from this round by softmax of the scores{among}"
        return how if members[1:] else "The only candidate"
    if members[0].run < chosen.run:
        return "From an earlier run of the tick, which was started again"
    if members[0].round > chosen.round:
        return "No candidate got as far as the block when it was tried"
    best = max(map(_selection, members))
    score = f"; its best candidate had {best:+.2f}" if best > -math.inf else ""
    return f"No candidate was good enough, so the next round was sampled{score}"


def set_shares(members: list[Candidate]) -> None:
    """Set the probability of each candidate in the draw: softmax of what the selection used."""
    members = furthest(members)
    scores = [_selection(candidate) for candidate in members]
    if -math.inf in scores:
        return
    weights = [math.exp(score - max(scores)) for score in scores]
    for candidate, weight in zip(members, weights, strict=True):
        candidate.share = weight / sum(weights)


def reason(candidate: Candidate, chosen: Candidate | None, among: int) -> str:
    """Why a candidate was chosen or rejected, in a line, the main reason first. `among`: size of its round."""
    if candidate.chosen:
        if candidate.share is None or among == 1:
            return "Became the block"
        return f"Became the block: drawn with a probability of {percent(candidate.share, 1)}"
    if candidate.on_path:
        return "The block continues it"
    parts = []
    if candidate.illegal:
        cut = ", cut off at its token limit" if candidate.finish_reason == "length" else ""
        parts.append("no continuation can compile" if candidate.half_written else f"does not compile{cut}")
    if candidate.ran is False:
        parts.append(f"failed when it was tried ({candidate.trial['exception']})")
    held = sorted(candidate.held.items(), key=lambda item: -item[1])
    parts += [f"{MINUS}{value:.2g}: {PENALTIES[name]}" for name, value in held if name != "syntax"]
    if any(answer.score is not None and answer.score < 0 for answer in candidate.questions):
        parts.append("the evaluator tends to no")
    if lost := _how_it_lost(candidate, chosen):
        parts.append(lost)
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def _how_it_lost(candidate: Candidate, chosen: Candidate | None) -> str:
    if chosen is None:
        return "no candidate is chosen yet"
    if candidate.depth is not None:
        return "another branch of the tree was chosen"
    if candidate.run < chosen.run:
        return "its tick was started again"
    if candidate.round < chosen.round or chosen.depth is not None:
        return "no candidate of its round was good enough"
    if chosen.share is None:
        return ""
    if candidate.share is None:
        return "another one got further when it was tried"
    beaten = "scored higher than the block, but was " if candidate.share > chosen.share else ""
    return f"{beaten}not drawn: its probability was {percent(candidate.share, 1)}"


def tree(sampled: Sequence[Candidate]) -> list[Candidate]:
    """The roots of the search tree. Sets `children`, `text_above` and `on_path` of the nodes."""
    nodes: dict[int | None, Candidate] = {one.id: one for one in sampled if one.depth is not None}
    roots: list[Candidate] = []
    for node in nodes.values():
        parent = nodes.get(node.parent)
        node.text_above = "" if parent is None else parent.text
        (roots if parent is None else parent.children).append(node)
    on_path = next((node for node in nodes.values() if node.chosen), None)
    while on_path is not None and not on_path.on_path:
        on_path.on_path = True
        on_path = nodes.get(on_path.parent)
    return roots


def _selection(candidate: Candidate) -> float:
    return -math.inf if candidate.selection is None else candidate.selection
