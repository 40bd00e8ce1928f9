"""The figures of all jobs or of one: calibration of the evaluator, and mean reward by tick."""

from collections.abc import Sequence
from typing import Any

from weavegen.database import Connection
from weavegen.trace.render import one_line
from weavegen.viewer import traces
from weavegen.viewer.plot import DIAGONAL, Point, ReferenceLine, Series, svg

LETTERS = "ABCDEF"
"""Names of the curves in a plot, one for each colour: the true names are too long for it."""


Figure = dict[str, Any]
"""A plot with its data: the `picture`, the true `names` of its curves by letter, how many others are `hidden` because
only the table has them, how many are `left_out` of it, too, and the `rows` of the table."""


def calibration(conn: Connection, job_id: int | None) -> Figure | None:
    """Predicted probability and observed share, by question. None if there are no labels."""
    rows = traces.rows(conn, "calibration_by_question", job=job_id)
    points = [(row["question"], row["predicted"], row["observed"]) for row in rows]
    labels = ("Predicted and observed successes", "predicted probability", "share that ran")
    return _figure(labels, rows, points, [DIAGONAL])


def rewards(conn: Connection, job_id: int | None) -> Figure | None:
    """Mean reward by tick, with a curve for each bootstrap file of a job. None if no tick has ended."""
    rows = traces.rows(conn, "rewards_by_tick", job=job_id)
    points = [(f"job {row['job_id']}, {row['bootstrap']}", row["tick"], row["reward"]) for row in rows]
    return _figure(("Mean reward by tick", "tick", "reward"), rows, points, whole_x=True)


def _figure(
    labels: tuple[str, str, str],
    rows: list[dict[str, Any]],
    points: Sequence[tuple[str, Any, Any]],
    references: Sequence[ReferenceLine] = (),
    whole_x: bool = False,
) -> Figure | None:
    """The figure of points, each with the name of its curve."""
    curves: dict[str, list[Point]] = {}
    for name, x, y in points:
        curves.setdefault(name, []).append((float(x), float(y)))
    if not curves:
        return None
    shown = dict(zip(LETTERS[: len(LETTERS) - len(references)], curves.items(), strict=False))
    series = [Series(letter, points) for letter, (_, points) in shown.items()]
    names = {letter: one_line(name) for letter, (name, _) in shown.items()}
    picture = svg(*labels, series, references, whole_x=whole_x, inline=True)
    left_out = rows[0].get("curves", len(curves)) - len(curves)
    return {"picture": picture, "names": names, "hidden": len(curves) - len(shown), "left_out": left_out, "rows": rows}
