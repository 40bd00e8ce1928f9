"""Plots: valid XML, everything inside the picture, round ticks, no external resources."""

import itertools
import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weavegen.viewer.plot import HEIGHT, WIDTH, Bar, ReferenceLine, Series, bars, css, svg, ticks

NUMBERS = st.floats(-1e9, 1e9)
SPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module", autouse=True)
def compiled_templates() -> None:
    """Render once, because compiling the templates may take longer than Hypothesis allows for an example."""
    svg("t", "x", "y", [Series("a", [(0, 0)])])
    bars("t", "x", [Bar("a", 1, "1")])


@given(NUMBERS, NUMBERS, st.booleans())
def test_ticks_are_few_and_round_and_span_the_values(a: float, b: float, whole: bool) -> None:
    low, high = min(a, b), max(a, b)
    positions = ticks(low, high, whole=whole)
    steps = [second - first for first, second in itertools.pairwise(positions)]
    slack = 1e-6 * max(abs(low), abs(high), 0.01)
    assert 2 <= len(positions) <= 10
    assert positions[0] <= low + slack
    assert positions[-1] >= high - slack
    power = 10.0 ** math.floor(math.log10(steps[0]) + 1e-6)
    assert any(math.isclose(steps[0], times * power, rel_tol=1e-6) for times in (1, 2, 5, 10))
    assert not whole or all(step >= 1 - 1e-9 for step in steps)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20), st.none() | NUMBERS)
def test_everything_is_inside_the_picture(points: list[tuple[float, float]], lowest: float | None) -> None:
    series = [Series("line", points), Series("points", points, "points")]
    root = ElementTree.fromstring(svg("title", "x", "y", series, [ReferenceLine("mark", 0.0)], y_floor=lowest))
    circles = root.findall(f"{SPACE}circle")
    assert len(circles) == 2 * len(points)
    for circle in circles:
        assert 0 <= float(circle.attrib["cx"]) <= WIDTH
        assert 0 <= float(circle.attrib["cy"]) <= HEIGHT


def test_texts_are_escaped_and_no_resource_is_fetched() -> None:
    text = svg("<script>&", "a<b", "c>d", [Series("</svg>", [(0, 0), (1, 2)])], [ReferenceLine('"m"', 1.0)])
    texts = [element.text for element in ElementTree.fromstring(text).iter(f"{SPACE}text")]
    assert {"<script>&", "a<b", "c>d", "</svg>", '"m"'} <= set(texts)
    assert not re.search(r"href|url\(|@import|<script", text)
    assert "prefers-color-scheme: dark" in text


def test_points_below_the_axis_are_drawn_at_its_end_and_counted() -> None:
    points = [(0.0, 1.0), (1.0, 2.0), (2.0, -500.0)]
    root = ElementTree.fromstring(svg("t", "x", "y", [Series("a", points, "points")], y_floor=0.0))
    kinds = [circle.attrib["class"] for circle in root.findall(f"{SPACE}circle")]
    assert kinds == ["point c0", "point c0", "beyond c0"]
    assert "a (1 lower)" in [element.text for element in root.iter(f"{SPACE}text")]


@pytest.mark.parametrize("points", [[], [(0.0, math.nan)], [(math.inf, 0.0)]])
def test_values_that_can_not_be_drawn_are_refused(points: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="a plot needs points, all of them finite"):
        svg("t", "x", "y", [Series("a", points)])


@given(st.lists(st.tuples(NUMBERS, st.floats(0, 1e9)), min_size=1, max_size=20), st.floats(0.001, 1e6))
def test_bars_of_a_histogram_start_at_zero_inside_the_picture(points: list[tuple[float, float]], width: float) -> None:
    root = ElementTree.fromstring(svg("t", "x", "y", [Series("a", points, "bars", width)]))
    bars = [bar for bar in root.iter(f"{SPACE}rect") if bar.attrib["class"].startswith("bar")]
    assert len(bars) == len(points)
    feet = {round(float(bar.attrib["y"]) + float(bar.attrib["height"]), 0) for bar in bars}
    assert max(feet) - min(feet) <= 1
    for bar in bars:
        assert 0 <= float(bar.attrib["x"]) <= WIDTH
        assert 0 <= float(bar.attrib["y"]) <= HEIGHT


def test_a_reference_line_may_go_through_two_points() -> None:
    reference = ReferenceLine("calibrated", 0.0, ((0.0, 0.0), (1.0, 1.0)))
    root = ElementTree.fromstring(svg("t", "x", "y", [Series("a", [(0.2, 0.3)])], [reference]))
    line = next(
        line_element
        for line_element in root.iter(f"{SPACE}line")
        if line_element.attrib["class"].startswith("reference")
    )
    assert float(line.attrib["x1"]) < float(line.attrib["x2"])
    assert float(line.attrib["y1"]) > float(line.attrib["y2"])


@given(st.lists(st.tuples(st.text("abc xyz", max_size=60), st.floats(0, 1e9)), min_size=1, max_size=15))
def test_horizontal_bars_are_inside_and_proportional_to_their_amounts(rows: list[tuple[str, float]]) -> None:
    root = ElementTree.fromstring(bars("t", "x", [Bar(name, value, f"{value:.0f}") for name, value in rows]))
    height = float(root.attrib["viewBox"].split()[3])
    drawn_bars = [bar for bar in root.iter(f"{SPACE}rect") if bar.attrib["class"].startswith("bar")]
    assert len(drawn_bars) == len(rows)
    most = max(value for _, value in rows)
    longest = max(float(bar.attrib["width"]) for bar in drawn_bars)
    for bar, (_, value) in zip(drawn_bars, rows, strict=True):
        assert float(bar.attrib["x"]) + float(bar.attrib["width"]) <= WIDTH
        assert float(bar.attrib["y"]) + float(bar.attrib["height"]) <= height
        assert math.isclose(float(bar.attrib["width"]), longest * (value / most if most else 0), abs_tol=0.2)


@pytest.mark.parametrize("rows", [[], [Bar("a", math.nan, "")], [Bar("a", -1.0, "")]])
def test_bars_need_amounts(rows: list[Bar]) -> None:
    with pytest.raises(ValueError, match="amounts"):
        bars("t", "x", rows)


def test_pictures_of_a_page_share_its_style_sheet() -> None:
    whole, part = (svg("t", "x", "y", [Series("a", [(0, 0), (1, 1)])], inline=inline) for inline in (False, True))
    assert css() in whole
    assert "<style" not in part
    assert "style=" not in part
    assert all(line.lstrip().startswith((".plot", "@media", "}")) for line in css().splitlines() if line.strip())
