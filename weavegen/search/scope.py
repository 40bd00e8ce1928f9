"""Which texts a query searches."""

import datetime
from dataclasses import dataclass

import numpy as np

from weavegen.search.documents import Columns
from weavegen.search.postings import Marks


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The filter for an agent with memory: its own blocks behind the window, and good blocks of other traces."""

    trace_id: int
    before: int
    """Blocks of the own trace below this index have left the window."""
    score: float
    """Least raw score of blocks of other traces. They are also legal Python and did not fail."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which texts a query searches; by default all.

    BM25's statistics (number of texts, mean length, document frequencies) cover the blocks of `job_id` or
    `trace_id`, or all blocks, and the examples if these are searched. Dropped blocks count until the next reindex.
    The other fields and the query's own filters restrict the hits and not the statistics.

    BM25 needs the average idf of all words if more than half of the texts hold a word of the query. It is taken
    from the whole index, plus the log of the scope's size over the index's: most words occur in one or two texts,
    so their idf grows with the log of the size.
    """

    job_id: int | None = None
    trace_id: int | None = None
    blocks: bool = True
    """False: search only the examples."""
    examples: bool = True
    until: datetime.datetime | None = None
    """Only blocks recorded before this time."""
    memory: Memory | None = None

    @property
    def columns(self) -> set[str]:
        """The names of the columns that `in_scope` and `allowed` read."""
        needed = {
            "traces": self.trace_id is not None or self.memory is not None,
            "jobs": self.job_id is not None,
            "recorded": self.until is not None,
            "indexes": self.memory is not None,
            "goods": self.memory is not None,
        }
        return {name for name, is_needed in needed.items() if is_needed}

    def in_scope(self, columns: Columns) -> Marks | None:
        """The blocks of a segment that the statistics cover. None: all."""
        marks: Marks | None = None
        if self.trace_id is not None:
            marks = columns["traces"] == self.trace_id
        elif self.job_id is not None:
            marks = columns["jobs"] == self.job_id
        return marks

    def allowed(self, columns: Columns) -> Marks | None:
        """The blocks of a segment that pass `until` and `memory`. None: all."""
        marks = None if self.until is None else columns["recorded"] < self.until.timestamp()
        if self.memory is not None:
            own = columns["traces"] == self.memory.trace_id
            good = np.where(own, columns["indexes"] < self.memory.before, columns["goods"] >= self.memory.score)
            marks = good if marks is None else marks & good
        return marks
