"""Small plots as SVG: lines, points, histograms, bars. Pure: data in, text out; nothing is fetched by the picture.

Light and dark follow the reader's system (a media query in the picture's own style). A page that shows many
pictures takes them without their style (`inline`), and has `css()` once. Colours are after those of Okabe and Ito
("Color Universal Design", 2008), which colour-blind readers tell apart.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 72, 20, 74, 54
"""Margins around the axes, in pixels."""
ROW = 24
"""Height of a bar with the gap below it, in pixels."""
LONGEST = 34
"""Letters of a bar's name that are shown."""
TICKS = 6
"""About so many on each axis."""
LETTER = 6.6
"""Width of a letter of the legend, about, in pixels."""
LIGHT = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7a5c00", "#444444")
DARK = ("#56b4e9", "#f08a4b", "#2fc79b", "#e29cc4", "#e6c229", "#bbbbbb")
STYLE = """
.plot text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1b1b1b; }
.plot .title { font-size: 16px; font-weight: 600; }
.plot .back { fill: #ffffff; }
.plot .grid { stroke: #e3e3e3; }
.plot .axis { stroke: #777777; }
.plot .line { fill: none; stroke-width: 2.2; stroke-linejoin: round; }
.plot .mark { stroke-width: 1.4; stroke-dasharray: 6 4; }
.plot .point { stroke: none; fill-opacity: 0.45; }
.plot .bar { stroke: none; fill-opacity: 0.65; }
.plot .key { fill-opacity: 1; }
.plot .beyond { fill: none; stroke-width: 1.2; stroke-opacity: 0.7; }
"""
DARK_STYLE = (
    ".plot text { fill: #e8e8e8; } .plot .back { fill: #16181c; } .plot .grid { stroke: #33373d; } "
    ".plot .axis { stroke: #8b9098; }"
)

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """What is drawn in one colour, and called by one name."""

    name: str
    points: Sequence[Point]
    """(x, y), finite. A value that is not known is no point."""
    kind: Literal["line", "points", "bars"] = "line"
    """bars: each stands on 0, from its x on, and is `width` wide, as in a histogram."""
    width: float = 1.0
    """Of the bars, as numbers of the x axis."""


@dataclass(frozen=True)
class Mark:
    """A dashed line, such as a known best: at one height, or through two points."""

    name: str
    y: float
    through: tuple[Point, Point] | None = None
    """From here to there; `y` is not looked at."""


@dataclass(frozen=True)
class Bar:
    """A named amount."""

    name: str
    value: float
    """0 or more, finite."""
    text: str
    """The amount, as it is shown."""


def svg(
    title: str,
    x: str,
    y: str,
    series: Sequence[Series],
    marks: Sequence[Mark] = (),
    lowest: float | None = None,
    whole: bool = False,
    inline: bool = False,
) -> str:
    """A picture. `x` and `y` name the axes; below about `lowest` there is no y axis: what lies lower is drawn at
    its end, as rings. `whole`: x has whole numbers only. `inline`: for a page that has `css()`.

    Raises ValueError where there is nothing finite to draw.
    """
    points = [point for one in series for point in one.points]
    if not points or not all(math.isfinite(value) for point in points for value in point):
        raise ValueError("a plot needs points, all of them finite")
    ends = [end for mark in marks for end in mark.through or ()]
    heights = [*(height for _, height in [*points, *ends]), *(mark.y for mark in marks if not mark.through)]
    if lowest is not None:
        heights = [max(height, lowest) for height in heights]
    places = [at for at, _ in [*points, *ends]]
    for one in series:
        if one.kind == "bars":
            heights.append(0.0)
            places += [at + one.width for at, _ in one.points]
    across = _Axis(places, LEFT, WIDTH - RIGHT, whole=whole)
    up = _Axis(heights, HEIGHT - BOTTOM, TOP)
    parts = [*_begin(title, LEFT, HEIGHT, inline), *_axes(across, up, x, y)]
    legend: list[tuple[str, str]] = []
    for number, one in enumerate(series):
        colour = number % len(LIGHT)
        parts += _drawn(one, colour, across, up)
        hidden = sum(height < up.low for _, height in one.points)
        legend.append((f"c{colour}", one.name + (f" ({hidden} lower)" if hidden else "")))
    for number, mark in enumerate(marks, len(series)):
        colour = number % len(LIGHT)
        (x1, y1), (x2, y2) = mark.through or ((across.low, mark.y), (across.high, mark.y))
        ends_at = f'x1="{across(x1):.1f}" x2="{across(x2):.1f}" y1="{up(y1):.1f}" y2="{up(y2):.1f}"'
        parts.append(f'<line class="mark c{colour}" {ends_at}/>')
        legend.append((f"c{colour}", mark.name))
    return "\n".join([*parts, *_legend(legend), "</svg>\n"])


def bars(title: str, x: str, rows: Sequence[Bar], inline: bool = False) -> str:
    """Horizontal bars, one below the other, each with its name before it and its amount behind it.

    `x` names the amounts. Raises ValueError where there is no bar, or an amount is no finite number from 0 on.
    """
    if not rows or not all(math.isfinite(row.value) and row.value >= 0 for row in rows):
        raise ValueError("bars need amounts, all of them finite and 0 or more")
    names = [row.name if len(row.name) <= LONGEST else f"{row.name[: LONGEST - 1]}…" for row in rows]
    left = 24 + LETTER * max(map(len, names))
    room = WIDTH - RIGHT - left - LETTER * max(len(row.text) for row in rows) - 10
    most = max(row.value for row in rows) or 1.0
    height = 62 + ROW * len(rows) + 30
    parts = list(_begin(title, 16, height, inline))
    for number, (row, name) in enumerate(zip(rows, names, strict=True)):
        top = 46 + ROW * number
        wide = max(room, 40) * row.value / most
        shown = f"<title>{escape(row.name)}: {escape(row.text)}</title>"
        parts += [
            f'<text x="{left - 8:.0f}" y="{top + 13}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="bar c0" x="{left:.0f}" y="{top}" width="{wide:.1f}" height="{ROW - 6}">{shown}</rect>',
            f'<text x="{left + wide + 6:.1f}" y="{top + 13}">{escape(row.text)}</text>',
        ]
    bottom = 46 + ROW * len(rows)
    parts += [
        f'<line class="axis" x1="{left:.0f}" x2="{left:.0f}" y1="40" y2="{bottom}"/>',
        f'<text x="{left:.0f}" y="{bottom + 22}">{escape(x)}</text>',
    ]
    return "\n".join([*parts, "</svg>\n"])


def css() -> str:
    """The style of pictures that are drawn `inline`."""
    dark = f"@media (prefers-color-scheme: dark) {{ {DARK_STYLE}{_colours(DARK)} }}"
    # Paper is white, whatever the reader's screen is.
    paper = dark.replace("(prefers-color-scheme: dark)", "screen and (prefers-color-scheme: dark)")
    return f"{STYLE}{_colours(LIGHT)}\n{paper}"


def _begin(title: str, left: float, height: int, inline: bool) -> Iterable[str]:
    size = f'width="{WIDTH}" height="{height}"'
    drawn = "" if inline else size
    yield (
        f'<svg class="plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {drawn} role="img">'
    )
    yield f"<title>{escape(title)}</title>"
    if not inline:
        yield f"<style>{css()}</style>"
    yield f'<rect class="back" {size}/>'
    yield f'<text class="title" x="{left:.0f}" y="26">{escape(title)}</text>'


class _Axis:
    """From numbers to pixels."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, whole: bool = False) -> None:
        self.ticks = ticks(min(values), max(values), whole=whole)
        self.low, self.high = self.ticks[0], self.ticks[-1]
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        share = (max(value, self.low) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Round numbers, 1, 2 or 5 times a power of ten apart, from at most `low` to at least `high`."""
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9 * size, 1e-12):  # one value, as far as a picture can tell
        around = size / 2 if size > 1e-9 else 0.5
        low, high = low - around, high + around
    rough = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough * 0.999)
    step = max(step, 1.0) if whole else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _label(value: float, step: float) -> str:
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value + 0.0:,.{digits}f}" if digits < 7 else f"{value:.3g}"


def _axes(across: _Axis, up: _Axis, x: str, y: str) -> Iterable[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for value in up.ticks:
        at = up(value)
        yield f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>'
        text = _label(value, up.ticks[1] - up.ticks[0])
        yield f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{text}</text>'
    for value in across.ticks:
        at = across(value)
        yield f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 5}"/>'
        text = _label(value, across.ticks[1] - across.ticks[0])
        yield f'<text x="{at:.1f}" y="{bottom + 20}" text-anchor="middle">{text}</text>'
    yield f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>'
    yield f'<line class="axis" x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{bottom}"/>'
    yield f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x)}</text>'
    middle = (TOP + bottom) / 2
    turned = f'transform="rotate(-90 16 {middle:.0f})"'
    yield f'<text x="16" y="{middle:.0f}" text-anchor="middle" {turned}>{escape(y)}</text>'


def _drawn(one: Series, colour: int, across: _Axis, up: _Axis) -> Iterable[str]:
    if one.kind == "bars":
        for at, height in one.points:
            begin, end, top = across(at), across(at + one.width), up(max(height, 0.0))
            size = f'width="{max(end - begin - 1, 0.5):.1f}" height="{max(up(0.0) - top, 0):.1f}"'
            yield f'<rect class="bar c{colour}" x="{begin:.1f}" y="{top:.1f}" {size}/>'
        return
    places = [(across(at), up(height), height < up.low) for at, height in one.points]
    if one.kind == "line":
        path = " ".join(f"{at:.1f},{height:.1f}" for at, height, _ in places)
        yield f'<polyline class="line c{colour}" points="{path}"/>'
    for at, height, beyond in places:
        radius = 3.2 if one.kind == "points" else 2.6
        kind = "beyond" if beyond else "point"
        yield f'<circle class="{kind} c{colour}" cx="{at:.1f}" cy="{height:.1f}" r="{radius}"/>'


def _legend(entries: Sequence[tuple[str, str]]) -> Iterable[str]:
    at = float(LEFT)
    for colour, name in entries:
        yield f'<rect class="key {colour}" x="{at:.0f}" y="43" width="12" height="12" rx="2"/>'
        yield f'<text x="{at + 18:.0f}" y="53">{escape(name)}</text>'
        at += 18 + LETTER * len(name) + 22


def _colours(colours: Sequence[str]) -> str:
    parts = []
    for at, colour in enumerate(colours):
        strokes = ", ".join(f".plot .{kind}.c{at}" for kind in ("line", "mark", "beyond"))
        fills = ", ".join(f".plot .{kind}.c{at}" for kind in ("point", "bar", "key"))
        parts.append(f" {strokes} {{ stroke: {colour}; }} {fills} {{ fill: {colour}; }}")
    return "".join(parts)
