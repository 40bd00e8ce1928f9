"""The report of an audit: its findings, by check."""

import msgspec

MAX_FINDINGS = 20
"""Findings of a check that are kept; the rest is only counted."""


class Finding(msgspec.Struct, frozen=True):
    """One violation of a check."""

    check: str
    trace: int | None
    place: str
    """The block, step, tick, file, ..."""
    problem: str


class Outcome(msgspec.Struct):
    """The result of one check."""

    name: str
    proves: str
    remark: bool
    looked_at: int = 0
    """How many rows, files or processes it examined."""
    found: int = 0
    findings: list[Finding] = []
    """The first MAX_FINDINGS of those found."""


class Report(msgspec.Struct):
    """The result of an audit."""

    outcomes: list[Outcome]
    counts: dict[str, int]
    """Rows in the scope, by subject: traces, ticks, blocks, ..."""
    paused: bool
    """The installation is down: nothing in it can advance."""

    @property
    def damage(self) -> int:
        """Findings that are not remarks."""
        return sum(outcome.found for outcome in self.outcomes if not outcome.remark)

    @property
    def remarks(self) -> int:
        return sum(outcome.found for outcome in self.outcomes if outcome.remark)
