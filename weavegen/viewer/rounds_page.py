"""The report of `weavegen improve`: a saved page with a table and a plot, and the plot as a picture."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from weavegen.training.rounds import Loop, Round, success
from weavegen.version import __version__
from weavegen.viewer import plot
from weavegen.viewer.plot import Series
from weavegen.viewer.rendering import saved_policy, saved_style, templates


def heading(round: Round) -> str:
    """The name of a round's column."""
    return (f"round {round.number}" if round.number else "base") + (" (best)" if round.best else "")


def write(folder: Path, loop: Loop, rows: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Write report.html and success.svg. Both take their name when they are complete.

    `rows`: for each measure its name, and a cell for each round.
    """
    done = [round for round in loop.rounds if round.evaluation is not None]
    html = templates().get_template("rounds.html").render(
        loop_state=loop, rounds=done, headings=list(map(heading, done)), rows=rows, version=__version__,
        style=saved_style(), policy=saved_policy(), picture=picture(done, inline=True),
    )  # fmt: skip
    for name, text in {"report.html": html, "success.svg": picture(done)}.items():
        draft = folder / f".{name}"
        draft.write_text(text)
        draft.replace(folder / name)


def picture(rounds: Sequence[Round], inline: bool = False) -> Markup:
    """Success by round with the ends of its interval, also unaided, and the judge's AUC, all in percent."""
    measures = [(float(round.number), success(round), success(round, unaided=True)) for round in rounds]
    series = [
        Series("success", [(x, 100 * one.value) for x, one, _ in measures if one.of]),
        Series("its 95% interval", [(x, 100 * end) for x, one, _ in measures for end in (one.low, one.high)], "points"),
        Series("unaided", [(x, 100 * one.value) for x, _, one in measures if one.of]),
        Series("AUC of the judge", [(float(one.number), 100 * one.auc) for one in rounds if one.auc is not None]),
    ]
    return plot.svg("Rounds", "round; 0: base", "%", [one for one in series if one.points], whole_x=True, inline=inline)
