"""Plots of the corpus: how far the evaluator is to be believed, and rewards by tick."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from markupsafe import Markup

from weavegen.trace.render import one_line
from weavegen.viewer.plot import Mark, Series, svg

CURVES = 6
"""Lines of a plot at most."""
_STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)


def calibration(conn: sa.Connection, job_id: int | None) -> "Plot | None":
    """Predicted against observed by question; None without labels."""
    query = """
        select question, bin, sum(labels)::bigint as labels, sum(predicted * labels) / sum(labels) as predicted,
          sum(observed * labels) / sum(labels) as observed, sum(brier * labels) / sum(labels) as brier
        from evaluator_calibration where cast(:job as bigint) is null or job_id = :job
        group by question, bin order by question, bin
        """
    rows = [dict(row._mapping) for row in conn.execute(sa.text(query), {"job": job_id})]
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        points.setdefault(row["question"], []).append((float(row["predicted"]), float(row["observed"])))
    if not points:
        return None
    mark = Mark("as predicted", 0.0, ((0.0, 0.0), (1.0, 1.0)))
    title = "What the evaluator thought of blocks, and how many ran"
    return plot(title, "predicted probability", "share that ran", rows, points, [mark])


def rewards(conn: sa.Connection, job_id: int | None) -> "Plot | None":
    """Mean reward by tick, a line for each bootstrap of a job; None before a tick is over."""
    query = """
        select job_id, job, bootstrap, tick, traces, reward, ran_share from learning_curves
        where cast(:job as bigint) is null or job_id = :job order by job_id desc, bootstrap, tick limit 2000
        """
    rows = [dict(row._mapping) for row in conn.execute(sa.text(query), {"job": job_id})]
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        name = f"job {row['job_id']}, {row['bootstrap']}"
        points.setdefault(name, []).append((float(row["tick"]), float(row["reward"])))
    if not points:
        return None
    return plot("Mean reward by tick", "tick", "reward, 0 to 0.5", rows, points, whole=True)


@dataclass(frozen=True)
class Plot:
    """A picture with what it was made of."""

    picture: Markup
    names: dict[str, str]
    """What the letters in the picture stand for: names are too long for it."""
    hidden: int
    """Series for which there was no room."""
    rows: list[dict[str, Any]]


def plot(
    title: str,
    x: str,
    y: str,
    rows: list[dict[str, Any]],
    points: dict[str, list[tuple[float, float]]],
    marks: Sequence[Mark] = (),
    whole: bool = False,
) -> Plot:
    """Lines, to be coloured by static/app.css: a page of ours takes no style from within itself."""
    shown = dict(zip("ABCDEF"[: CURVES - len(marks)], points.items(), strict=False))
    series = [Series(letter, found) for letter, (_, found) in shown.items()]
    picture = Markup(_STYLE.sub("", svg(title, x, y, series, marks, whole=whole)))  # the plot escapes its texts
    names = {letter: one_line(name) for letter, (name, _) in shown.items()}
    return Plot(picture, names, len(points) - len(shown), rows)


def freshness(conn: sa.Connection, view: str) -> float | None:
    """How many seconds ago a materialised view was refreshed; None: never."""
    query = "select seconds_ago from freshness where name = :name"
    found = conn.execute(sa.text(query), {"name": view}).scalar_one_or_none()
    return None if found is None else float(found)
