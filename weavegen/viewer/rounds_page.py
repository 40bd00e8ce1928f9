"""The report of `weavegen improve`: a saved page with a table and two plots, and the first plot as a picture."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from weavegen.training.rounds import Loop, Round, auc, success
from weavegen.version import __version__
from weavegen.viewer import plot
from weavegen.viewer.plot import Series
from weavegen.viewer.rendering import saved_policy, saved_style, templates

Rows = Sequence[tuple[str, Sequence[str]]]
"""For each measure its name, and a cell for each round."""


def heading(round: Round) -> str:
    """The name of a round's column."""
    return (f"round {round.number}" if round.number else "base") + (" (best)" if round.best else "")


def write(folder: Path, loop: Loop, rows: Rows) -> None:
    """Write report.html and success.svg. Both take their name when they are complete."""
    done = [round for round in loop.rounds if round.evaluation is not None]
    page = templates().get_template("rounds.html")
    html = page.render(
        loop_state=loop, rounds=done, headings=[heading(round) for round in done], rows=rows, version=__version__,
        style=saved_style(), policy=saved_policy(), plots=[successes(done, inline=True), judges(done)],
    )  # fmt: skip
    for name, text in {"report.html": html, "success.svg": successes(done)}.items():
        draft = folder / f".{name}"
        draft.write_text(text)
        draft.replace(folder / name)


def successes(rounds: Sequence[Round], inline: bool = False) -> Markup:
    """Success by round, with the ends of its interval."""
    measures = [(float(round.number), success(round)) for round in rounds]
    lines = [
        Series("success", [(x, 100 * one.value) for x, one in measures if one.of]),
        Series("95% interval, low", [(x, 100 * one.low) for x, one in measures], "points"),
        Series("95% interval, high", [(x, 100 * one.high) for x, one in measures], "points"),
    ]
    lines = [line for line in lines if line.points]
    return plot.svg("Success on held-out seeds", "round; 0: the base", "%", lines, whole_x=True, inline=inline)


def judges(rounds: Sequence[Round]) -> Markup:
    """The AUC of the judge by round; nothing where it is unknown."""
    by_name = {"the base's actions": [one.auc for one in rounds], "its own actions": [auc(one) for one in rounds]}
    lines = [
        Series(name, [(float(number), area) for number, area in enumerate(areas) if area is not None])
        for name, areas in by_name.items()
    ]
    if not any(line.points for line in lines):
        return Markup()
    title = "Will it run? How well the model's answers rank actions"
    lines = [line for line in lines if line.points]
    return plot.svg(title, "round; 0: the base", "AUC", lines, whole_x=True, inline=True)
