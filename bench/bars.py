"""A figure, the bar that it must meet, and how they are printed."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from weavegen.evaluator.evaluation import Measure


@dataclass(frozen=True)
class Figure:
    """One measured number. `bar` is a limit that it must not cross, or None if there is no limit."""

    what: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def bar(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return f"≤ {self.at_most:g}" if self.at_most is not None else ""

    @property
    def met(self) -> bool | None:
        if self.at_least is not None:
            return self.value >= self.at_least
        return self.value <= self.at_most if self.at_most is not None else None


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Group:
    """A table below its title. The title may be wider than the table."""
    made = Table(box=None, header_style="bold", pad_edge=False)
    for number, column in enumerate(columns):
        made.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        made.add_row(*(f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in row))
    return Group(Text(title, style="italic"), made)


def in_percent(share: Measure) -> str:
    """A share with its interval: `71 % [51, 85]`."""
    return f"{100 * share.value:.0f} % [{100 * share.low:.0f}, {100 * share.high:.0f}]"


def report(console: Console, figures: Sequence[Figure]) -> int:
    """Print the figures beside their bars. Returns the exit code: 1 when a bar is missed."""
    rows = [
        (
            figure.what,
            f"{figure.value:,.1f} {figure.unit}",
            figure.bar,
            {True: "met", False: "MISSED", None: ""}[figure.met],
        )
        for figure in figures
    ]
    console.print(table("\nFigures", ("figure", "measured", "bar", ""), rows))
    barred = [figure for figure in figures if figure.met is not None]
    met = sum(bool(figure.met) for figure in barred)
    console.print(f"\n{met} of {len(barred)} bars met")
    return 0 if met == len(barred) else 1
