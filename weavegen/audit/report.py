"""What an audit says: its findings, by check."""

import msgspec

SHOWN = 20
"""Findings of a check that are kept; the others are counted."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    check: str
    trace: int | None
    place: str
    """Which block, step, tick, file, ..."""
    problem: str


class Outcome(msgspec.Struct):
    """What came of one check."""

    name: str
    proves: str
    remark: bool
    looked_at: int = 0
    found: int = 0
    findings: list[Finding] = []
    """The first SHOWN of those found."""


class Report(msgspec.Struct):
    """What an audit found."""

    outcomes: list[Outcome]
    counts: dict[str, int]
    """Rows that there were to look at, by subject: traces, ticks, blocks, ..."""
    paused: bool
    """The installation was down: nothing in it advances, and nothing has to."""

    @property
    def damage(self) -> int:
        """Findings that are no mere remarks."""
        return sum(outcome.found for outcome in self.outcomes if not outcome.remark)

    @property
    def remarks(self) -> int:
        return sum(outcome.found for outcome in self.outcomes if outcome.remark)
