"""All that was sampled for one block, side by side, and why each but one was lost."""

import math
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from weavegen.errors import UsageError
from weavegen.kernel.selection import penalised
from weavegen.kernel.steps import Penalties
from weavegen.viewer import traces
from weavegen.viewer.differences import Difference, difference
from weavegen.viewer.pages import percent
from weavegen.viewer.traces import PENALTIES, Asked


@dataclass
class Candidate:
    """A text that the model was sampled for."""

    id: int
    step: int
    """steps.id of the step that sampled it."""
    run: int
    """Which run of the tick."""
    round: int
    depth: int | None
    """Of a tree's node; None: a whole candidate."""
    parent: int | None
    position: int
    text: str
    tokens: int
    finish_reason: str
    chosen: bool
    asked: list[Asked]
    linted: dict[str, Any]
    """As traces.penalties has it; empty: it was not linted."""
    share: float | None = None
    """Probability with which it would be drawn, where there was a draw among its round."""
    reason: str = ""
    """Why it was lost, or chosen."""
    children: list["Candidate"] = field(default_factory=list)
    above: str = ""
    """Of a tree's node: the text of the one that it goes on from."""
    on_path: bool = False
    """Of a tree's node: the block is made of it."""

    @property
    def own(self) -> str:
        """What it adds to the text above it."""
        return self.text.removeprefix(self.above)

    @property
    def questions(self) -> list[Asked]:
        """Those that it was selected by."""
        return [one for one in self.asked if one.stage == "selection"]

    @property
    def score(self) -> float | None:
        """Mean log odds over its questions; None: it was never scored."""
        known = [one.score for one in self.questions if one.score is not None]
        return sum(known) / len(known) if known else None

    @property
    def half_written(self) -> bool:
        """It is a tree's node that ends where its tokens did; others go on from it."""
        return self.linted.get("viable") is not None

    @property
    def held(self) -> dict[str, float]:
        """The penalties that the selection counted: of a half-written node those that nothing makes good again."""
        held: dict[str, float] = self.linted.get("held", {})
        if not self.half_written:
            return held
        kept = {name: value for name, value in held.items() if name == "length_after_debug"}
        return kept if self.linted["viable"] else {"syntax": 2.0, **kept}

    @property
    def illegal(self) -> bool:
        """It is no legal Python; or half-written, and can't become it."""
        return self.linted["viable"] is False if self.half_written else self.linted.get("compiles") is False

    @property
    def selection(self) -> float | None:
        """Score less penalties, as the selection takes it; corrections of questions are left out of account."""
        if not self.questions and not self.linted:
            return None
        return penalised(self.score, Penalties(**self.held))


@dataclass(frozen=True)
class Round:
    """What was sampled at a time."""

    run: int
    number: int
    tree: bool
    candidates: list[Candidate]
    """The chosen one first, then by score."""
    verdict: str
    """What came of the round."""


@dataclass(frozen=True)
class Choice:
    """A block and all that was sampled for it."""

    block: dict[str, Any]
    rounds: list[Round]
    """The last one first."""
    tree: list[Candidate]
    """Roots of the search tree; empty where there was none."""
    queries: list[Candidate]
    """What was sampled for the header, or the type."""
    retrievals: list[dict[str, Any]]
    before: int | None
    """Index of the nearest block before this one that was sampled; None: there is none."""
    after: int | None

    @property
    def count(self) -> int:
        return sum(len(one.candidates) for one in self.rounds)

    @property
    def chosen(self) -> Candidate | None:
        return next((one for round in self.rounds for one in round.candidates if one.chosen), None)

    def differences(self) -> dict[int, Difference]:
        """How each candidate that lost differs from the chosen one, both as sampled, by Candidate.id."""
        if (kept := self.chosen) is None:
            return {}
        return {
            one.id: difference(kept.text, one.text, unfinished=one.half_written)
            for round in self.rounds
            for one in round.candidates
            if not (one.chosen or one.on_path)
        }


SAMPLED = sa.text(
    """
    select c.id, c.step_id as step, s.run, s.tick, s.ordinal, c.round, c.depth, c.parent_id as parent, c.position,
      c.text, c.tokens, c.finish_reason, c.type
    from steps s join candidates c on c.step_id = s.id
    where s.trace_id = :trace and s.tick = :tick and s.kind = 'sample' and c.block_index = :index
    order by s.run desc, s.ordinal, c.position
    """
)
HITS = sa.text(
    """
    select r.id, r.query, r.before, s.run, s.ordinal, h.rank, h.score, h.used, h.example_id,
      b.trace_id, b.index, coalesce(b.type, e.type) as type, left(coalesce(b.body, e.body), 600) as body
    from steps s join retrievals r on r.step_id = s.id
    left join retrieval_hits h on h.retrieval_id = r.id
    left join blocks b on b.id = h.block_id left join examples e on e.id = h.example_id
    where s.trace_id = :trace and s.tick = :tick and s.kind = 'retrieve' order by s.ordinal, h.rank
    """
)

AROUND = sa.text(
    """
    select
      (select index from blocks where trace_id = :trace and index < :index and candidate_id is not null
        order by index desc limit 1) as before,
      (select index from blocks where trace_id = :trace and index > :index and candidate_id is not null
        order by index limit 1) as after
    """
)


def place(conn: sa.Connection, candidate_id: int) -> tuple[int, int]:
    """Trace and index of the block that a candidate was sampled for. Raises UsageError if there is none such."""
    query = sa.text("select trace_id, block_index from candidates where id = :id")
    row = conn.execute(query, {"id": candidate_id}).one_or_none()
    if row is None:
        raise UsageError(f"there is no candidate {candidate_id}")
    return row.trace_id, row.block_index


def choice(conn: sa.Connection, trace_id: int, index: int) -> Choice:
    """Everything about how a block was chosen. Raises UsageError if there is no such block."""
    found = traces.blocks(conn, trace_id, index, index + 1)
    if not found:
        raise UsageError(f"trace {trace_id} has no block {index}")
    [block] = found
    # A fork's copied blocks were sampled in the trace that it goes on from.
    home = conn.execute(
        sa.text(
            "select c.trace_id, s.tick, c.block_index from candidates c join steps s on s.id = c.step_id "
            "where c.id = :id"
        ),
        {"id": block["candidate_id"]},
    ).one_or_none()
    where = {"trace": trace_id, "tick": block["tick"], "index": index}
    if home is not None:
        where = {"trace": home.trace_id, "tick": home.tick, "index": home.block_index}
    rows = conn.execute(SAMPLED, where).all()
    ids = [row.id for row in rows]
    asked, linted = traces.scores(conn, ids), traces.penalties(conn, ids)
    sampled, queries, query_steps = [], [], set()
    for row in rows:
        one = Candidate(
            id=row.id, step=row.step, run=row.run, round=row.round, depth=row.depth, parent=row.parent,
            position=row.position, text=row.text, tokens=row.tokens, finish_reason=row.finish_reason,
            chosen=row.id == block["candidate_id"], asked=asked.get(row.id, []), linted=linted.get(row.id, {}),
        )  # fmt: skip
        if row.type in ("bm25-query", "next-type"):
            queries.append(one)
            query_steps.add((row.run, row.ordinal))
        else:
            sampled.append(one)
    hits = conn.execute(HITS, where).all() if query_steps else []
    # A query runs straight after it was sampled: the next retrieval of the tick is its own.
    own = set()
    for run, ordinal in query_steps:
        after = [hit.ordinal for hit in hits if hit.run == run and hit.ordinal > ordinal]
        if after:
            own.add((run, min(after)))
    retrieved = [dict(hit._mapping) for hit in hits if (hit.run, hit.ordinal) in own]
    roots = tree(sampled)  # first: whether a node is on the block's path is a reason
    around = conn.execute(AROUND, {"trace": trace_id, "index": index}).one()
    return Choice(block, rounds(sampled), roots, queries, retrieved, around.before, around.after)


def rounds(sampled: list[Candidate]) -> list[Round]:
    """What was sampled, by rounds, the one that was chosen from first; each candidate gets its reason."""
    groups: dict[tuple[int, int, bool], list[Candidate]] = {}
    for one in sampled:
        groups.setdefault((one.run, one.round, one.depth is not None), []).append(one)
    found = []
    chosen = next((one for one in sampled if one.chosen), None)
    for (run, number, is_tree), members in groups.items():
        here = chosen is not None and chosen in members
        if not is_tree and here:
            shares(members)
        best = max((one.selection for one in members if one.selection is not None), default=None)
        if is_tree:
            verdict = "Pieces of a tree search; the tree is below"
        elif here:
            verdict = "The last round: one of these was drawn by softmax of its score"
            if len(members) == 1:
                verdict = "One was sampled, and taken"
        elif chosen is not None and run < chosen.run:
            verdict = "Of an earlier run of the tick, which was started over"
        elif chosen is None:
            verdict = "Nothing of it is a block yet"
        else:
            verdict = "Nothing in this round was good enough, so the next round was sampled"
            if best is not None:
                verdict += f"; its best had {best:+.2f}"
        for one in members:
            one.reason = reason(one, chosen, len(members))
        members.sort(
            key=lambda one: (not one.chosen, -(one.selection if one.selection is not None else -math.inf))
        )
        found.append(Round(run, number, is_tree, members, verdict))
    found.sort(key=lambda one: (-one.run, not any(c.chosen for c in one.candidates), -one.number))
    return found


def shares(members: list[Candidate]) -> None:
    """Give each its probability in the draw: softmax of what the selection takes."""
    scores = [one.selection for one in members]
    known = [score for score in scores if score is not None]
    if len(known) < len(members) or not known:
        return
    top = max(known)
    weights = [math.exp(score - top) for score in known]
    for one, weight in zip(members, weights, strict=True):
        one.share = weight / sum(weights)


def reason(one: Candidate, chosen: Candidate | None, among: int) -> str:
    """Why a candidate was lost, or chosen, in a line; the weightiest first."""
    if one.chosen:
        if one.share is None or among == 1:
            return "Became the block"
        return f"Became the block: drawn with a probability of {percent(one.share, 1)}"
    if one.on_path:
        return "The block goes on from it"
    parts = []
    held = one.held
    if one.illegal and one.half_written:
        parts.append("can't become legal any more")
    elif one.illegal:
        cut = ", cut off at its token limit" if one.finish_reason == "length" else ""
        parts.append(f"does not compile{cut}")
    others = sorted((name for name in held if name != "syntax"), key=lambda name: -held[name])
    parts += [f"\N{MINUS SIGN}{held[name]:.2g}: {PENALTIES[name]}" for name in others]
    worst = min((q for q in one.questions if q.score is not None), key=lambda q: q.score or 0.0, default=None)
    if worst is not None and worst.score is not None and worst.score < 0:
        parts.append("the evaluator leans to no")
    if chosen is None:
        parts.append("nothing is chosen yet")
    elif one.depth is not None:
        parts.append("another branch of the tree was taken")
    elif one.run < chosen.run:
        parts.append("its tick was started over")
    elif one.round < chosen.round or (chosen.depth is not None and one.depth is None):
        parts.append("its whole round was not good enough")
    elif one.share is not None and chosen.share is not None:
        beaten = "scored higher than the block, but was " if one.share > chosen.share else ""
        parts.append(f"{beaten}not drawn: its probability was {percent(one.share, 1)}")
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def tree(sampled: list[Candidate]) -> list[Candidate]:
    """The nodes of a tree search under their parents."""
    nodes = {one.id: one for one in sampled if one.depth is not None}
    roots: list[Candidate] = []
    for one in nodes.values():
        above = nodes.get(one.parent) if one.parent is not None else None
        one.above = "" if above is None else above.text
        (roots if above is None else above.children).append(one)
    last = next((one for one in nodes.values() if one.chosen), None)
    while last is not None and not last.on_path:
        last.on_path = True
        last = nodes.get(last.parent) if last.parent is not None else None
    return roots
