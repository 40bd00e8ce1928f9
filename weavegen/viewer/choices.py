"""A block with all its candidates and retrievals, read from the database."""

from dataclasses import dataclass
from typing import Any

from weavegen import sql
from weavegen.database import Connection
from weavegen.errors import required
from weavegen.viewer import traces
from weavegen.viewer.candidates import Candidate, Round, rounds, tree
from weavegen.viewer.differences import Difference, difference


@dataclass(frozen=True)
class Choice:
    """A block with all its candidates."""

    block: dict[str, Any]
    rounds: list[Round]
    """The last round first."""
    tree: list[Candidate]
    """Roots of the search tree. Empty without a tree search."""
    queries: list[Candidate]
    """Sampled queries and block types."""
    retrievals: list[dict[str, Any]]
    before: int | None
    """Index of the previous block that has candidates."""
    after: int | None

    @property
    def candidates(self) -> list[Candidate]:
        return [candidate for round in self.rounds for candidate in round.candidates]

    @property
    def chosen(self) -> Candidate | None:
        return next((candidate for candidate in self.candidates if candidate.chosen), None)

    def differences(self) -> dict[int, Difference]:
        """How each rejected candidate differs from the chosen one, both as sampled, by Candidate.id."""
        if (chosen := self.chosen) is None:
            return {}
        return {
            candidate.id: difference(chosen.text, candidate.text, unfinished=candidate.half_written)
            for candidate in self.candidates
            if not (candidate.chosen or candidate.on_path)
        }


def choice(conn: Connection, trace_id: int, index: int) -> Choice:
    """A block with its candidates and retrievals. Raises UsageError if there is no such block."""
    found = traces.blocks(conn, trace_id, index, index + 1)
    block = required(next(iter(found), None), f"trace {trace_id} has no block {index}")
    place = {"trace": trace_id, "tick": block["tick"], "index": index}
    # The shared blocks of a fork were sampled in the original trace.
    original = sql.run(conn, "viewer/place_of_candidate", id=block["candidate_id"]).one_or_none()
    if original is not None:
        place = dict(original._asdict())
    sampled: list[Candidate] = []
    queries: list[Candidate] = []
    for row in traces.rows(conn, "sampled", **place):
        type, chosen = row.pop("type"), row["id"] == block["candidate_id"]
        row |= {"answers": traces.answers(row["answers"]), "linted": traces.penalties(row["linted"])}
        (queries if type in ("bm25-query", "next-type") else sampled).append(Candidate(**row, chosen=chosen))
    roots = tree(sampled)  # before the reasons, which use `on_path`
    neighbours = sql.run(conn, "viewer/sampled_neighbours", trace=trace_id, index=index).one()
    return Choice(block, rounds(sampled), roots, queries, traces.rows(conn, "retrieval_hits", **place), *neighbours)
