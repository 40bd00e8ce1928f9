"""Plots as SVG: lines, points, histograms and horizontal bars. Pure functions from data to text.

templates/plot.svg and bars.svg have the elements, with classes and no styles; static/plot.css styles them. A
picture for a file of its own contains that style sheet with light and dark colours. A picture for a page
(`inline=True`) uses the page's style sheet.

Plotting libraries were tried instead. matplotlib and altair take 90 to 180 ms a plot and 100 MB. matplotlib and
lets-plot write `style` attributes, which the policy of the pages forbids, and have fixed colours. pygal writes a
script and random ids, takes 50 ms for 300 points, and draws points below the y axis outside of the plot.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from markupsafe import Markup

from weavegen.viewer.rendering import STATIC, templates

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 72, 20, 74, 54
"""Margins around the axes, in pixels."""
ROW_HEIGHT = 24
"""Height of a horizontal bar with the gap below it, in pixels."""
MAX_NAME_CHARS = 34
"""Longer names of horizontal bars are cut. The tooltip has the whole name."""
INTERVALS = 6
"""Approximate number of intervals on an axis."""
LETTER_WIDTH = 6.6
"""Approximate width of a letter, in pixels."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """Points that have a name and a colour in common."""

    name: str
    points: Sequence[Point]
    """(x, y), finite. Leave unknown values out."""
    kind: Literal["line", "points", "bars"] = "line"
    """bars: a histogram. Each bar reaches from 0 to y, and from x to x + bar_width."""
    bar_width: float = 1.0
    """In units of the x axis."""


@dataclass(frozen=True)
class ReferenceLine:
    """A dashed line: horizontal at `y`, or between two points."""

    name: str
    y: float
    between: tuple[Point, Point] | None = None
    """If given, `y` is ignored."""


DIAGONAL = ReferenceLine("calibrated", 0.0, ((0.0, 0.0), (1.0, 1.0)))


@dataclass(frozen=True)
class Bar:
    """A named amount."""

    name: str
    value: float
    """Finite, at least 0."""
    text: str
    """The amount in words."""


def svg(
    title: str,
    x_label: str,
    y_label: str,
    series: Sequence[Series],
    references: Sequence[ReferenceLine] = (),
    y_floor: float | None = None,
    whole_x: bool = False,
    inline: bool = False,
) -> Markup:
    """A plot with two axes and a legend.

    `y_floor`: the y axis begins about there; lower points are drawn as rings at its end and counted in the legend.
    `whole_x`: the x axis has whole numbers only. Raises ValueError if there are no points, or one is not finite.
    """
    points = [point for line in series for point in line.points]
    if not points or not all(math.isfinite(value) for point in points for value in point):
        raise ValueError("a plot needs points, all of them finite")
    ends = [end for line in references for end in line.between or ()]
    histograms = [line for line in series if line.kind == "bars"]
    xs = [x for x, _ in [*points, *ends]] + [x + line.bar_width for line in histograms for x, _ in line.points]
    ys = [y for _, y in [*points, *ends]] + [line.y for line in references if line.between is None]
    if y_floor is not None:
        ys = [max(y, y_floor) for y in ys]
    x_axis = _Axis(xs, LEFT, WIDTH - RIGHT, whole=whole_x)
    y_axis = _Axis(ys + [0.0] * bool(histograms), HEIGHT - BOTTOM, TOP)
    names = []
    for line in series:
        lower = sum(y < y_axis.low for _, y in line.points)
        names.append(line.name + (f" ({lower} lower)" if lower else ""))
    names += [line.name for line in references]
    places = [LEFT + sum(40 + LETTER_WIDTH * len(name) for name in names[:at]) for at in range(len(names))]
    return _render(
        "plot.svg", title, HEIGHT, inline,
        x=x_axis, y=y_axis, x_label=x_label, y_label=y_label, series=series, references=references,
        legend=list(zip(places, names, strict=True)),
    )  # fmt: skip


def bars(title: str, x_label: str, rows: Sequence[Bar], inline: bool = False) -> Markup:
    """Horizontal bars, each with its name before it and its amount after it.

    Raises ValueError if there are no bars, or an amount is negative or not finite.
    """
    if not rows or not all(math.isfinite(row.value) and row.value >= 0 for row in rows):
        raise ValueError("bars need amounts, all of them finite and 0 or more")
    left = 24 + LETTER_WIDTH * min(MAX_NAME_CHARS, max(len(row.name) for row in rows))
    room = max(40, WIDTH - RIGHT - left - LETTER_WIDTH * max(len(row.text) for row in rows) - 10)
    most = max(row.value for row in rows) or 1.0
    return _render(
        "bars.svg", title, 92 + ROW_HEIGHT * len(rows), inline,
        x_label=x_label, rows=rows, left=left, widths=[room * (row.value / most) for row in rows],
        max_name_chars=MAX_NAME_CHARS, row_height=ROW_HEIGHT,
    )  # fmt: skip


@cache
def css() -> str:
    """The style of pictures in files of their own: static/plot.css with the colours of static/colours.css.

    Programs other than browsers know no CSS variables, so the colours are put in.
    """
    colours = re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", (STATIC / "colours.css").read_text())
    light = dark = (STATIC / "plot.css").read_text()
    for name, in_light, in_dark in colours:
        light = light.replace(f"var(--{name})", in_light)
        dark = dark.replace(f"var(--{name})", in_dark)
    # Prints are light.
    return f"{light}@media screen and (prefers-color-scheme: dark) {{\n{dark}}}\n"


def _render(template: str, title: str, height: int, inline: bool, **values: Any) -> Markup:
    style = None if inline else Markup(css())
    size = {"width": WIDTH, "height": height, "top": TOP, "bottom": HEIGHT - BOTTOM, "right": WIDTH - RIGHT}
    return Markup(templates().get_template(template).render(title=title, style=style, **(size | values)))


def ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Round numbers, 1, 2 or 5 times a power of ten apart, from at most `low` to at least `high`."""
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9 * size, 1e-12):  # a single value
        margin = size / 2 if size > 1e-9 else 0.5
        low, high = low - margin, high + margin
    least = (high - low) / INTERVALS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * 0.999)
    step = max(step, 1.0) if whole else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


class _Axis:
    """A scale from values to pixels, from `start` to `end`."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, whole: bool = False) -> None:
        self.ticks = ticks(min(values), max(values), whole=whole)
        self.low, self.high = self.ticks[0], self.ticks[-1]
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        share = (max(value, self.low) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def labels(self) -> Iterator[tuple[float, str]]:
        """Pixel and text of each tick."""
        digits = max(0, -math.floor(math.log10(self.ticks[1] - self.ticks[0]) + 1e-9))
        for value in self.ticks:
            yield self(value), f"{value + 0.0:,.{digits}f}" if digits < 7 else f"{value:.3g}"
