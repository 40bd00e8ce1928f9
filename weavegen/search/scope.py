"""Where a query looks."""

import datetime
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weavegen.search.documents import Columns

Marks = NDArray[np.bool_]
"""One for each text of a part of the index."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """For an agent: of its own trace what has left the window, of others what is good."""

    trace_id: int
    before: int
    """Index in the own trace below which a block has left the window."""
    score: float
    """Raw score that blocks of other traces have at least; they are legal Python, and did not fail."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Where a query looks; by default everywhere.

    BM25's statistics (number of texts, mean length, how many hold a word) are those of the texts in `job_id` or
    `trace_id`, or of all, and of the examples, where these are looked through; what was dropped since it was
    indexed is counted until the index is made anew. The other fields, like a query's own filters, narrow what is
    found and not what is known. The mean rarity of all words, which BM25 asks for when more than half of the texts
    hold a word, is that of the whole index, set off by how much smaller the scope is: most words stand in a text
    or two, and so their rarity goes with the log of the size.
    """

    job_id: int | None = None
    trace_id: int | None = None
    blocks: bool = True
    """False: only look through the examples."""
    examples: bool = True
    until: datetime.datetime | None = None
    """Only blocks recorded before this moment."""
    memory: Memory | None = None

    @property
    def needs(self) -> set[str]:
        """The columns that it reads."""
        asked = {
            "traces": self.trace_id is not None or self.memory is not None,
            "jobs": self.job_id is not None,
            "recorded": self.until is not None,
            "indexes": self.memory is not None,
            "goods": self.memory is not None,
        }
        return {name for name, wanted in asked.items() if wanted}

    def known(self, columns: Columns) -> Marks | None:
        """The blocks of a part that statistics are over; None: all."""
        marks: Marks | None = None
        if self.trace_id is not None:
            marks = columns["traces"] == self.trace_id
        elif self.job_id is not None:
            marks = columns["jobs"] == self.job_id
        return marks

    def allowed(self, columns: Columns) -> Marks | None:
        """The blocks of a part that may be found, as far as the other fields say; None: all."""
        marks = None if self.until is None else columns["recorded"] < self.until.timestamp()
        if self.memory is not None:
            own = columns["traces"] == self.memory.trace_id
            seen = np.where(own, columns["indexes"] < self.memory.before, columns["goods"] >= self.memory.score)
            marks = seen if marks is None else marks & seen
        return marks
