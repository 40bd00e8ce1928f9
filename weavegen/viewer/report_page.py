"""The report of a job as a saved page of the viewer: one HTML file that loads nothing and runs no scripts.

Models and programs wrote some of its texts. The templates escape them and replace control characters. The page's
Content-Security-Policy allows its own style sheet alone.
"""

from collections import Counter
from typing import Any

from markupsafe import Markup

from weavegen.exports.card import SIMULATED
from weavegen.store import reports
from weavegen.text import duration
from weavegen.viewer import plot
from weavegen.viewer.plot import Bar, Series
from weavegen.viewer.rendering import as_json, saved_policy, saved_style, seconds_text, templates
from weavegen.viewer.report import MAX_SCORE, REWARD_BIN, SCORE_BIN, Report, Row

MAX_BARS = 12
MAX_CURVES = 4
PROGRAM_BINS = 30
UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


def html(report: Report) -> str:
    page = templates().get_template("report.html")
    return page.render(
        r=report,
        style=saved_style(),
        policy=saved_policy(),
        simulated=SIMULATED,
        plots={name: picture for name, picture in plots(report).items() if picture is not None},
        settings=None if report["effective"] is None else flat(report["effective"]),
        revisions=[row | {"rows": flat(row["settings"])} for row in report["revisions"]],
        score_bin=SCORE_BIN,
    )


def flat(values: Row) -> list[tuple[str, str]]:
    """Settings as pairs of KEY and JSON, sorted; settings of a block type have the key TYPE.KEY."""
    return [(key, as_json(value, indent=-1)) for key, value in sorted(reports.flat(values).items())]


def plots(report: Report) -> dict[str, Markup | None]:
    """The plots by name; None where there is too little to draw."""
    return {
        "scores": _scores(report["scores"]),
        "rewards": _rewards(report["rewards"]),
        "ticks": _ticks(report["ticks"]),
        "calibration": _calibration(report["calibration"]),
        "blocks_rate": _rate(report, "blocks", "Blocks a minute", 60.0),
        "tokens_rate": _rate(report, "tokens", "Sampled tokens a second", 1.0),
        "model_time": _model_time(report["time"]),
        "rejections": _counts("Why candidates lost", report["rejections"], "reason", "candidates"),
        "penalties": _counts("What linting found", report["penalties"], "penalty", "penalised"),
        "programs": _programs(report["program_scores"]),
    }


def _plot(title: str, x_label: str, y_label: str, *series: Series, **more: Any) -> Markup | None:
    drawn = [line for line in series if line.points]
    return plot.svg(title, x_label, y_label, drawn, inline=True, **more) if drawn else None


def _scores(rows: list[Row]) -> Markup | None:
    """Shares and not counts: there are several losers for each chosen candidate."""
    series = []
    for kind in ("lost", "chosen"):
        total = sum(row[kind] for row in rows)
        points = [(row["score"], 100 * row[kind] / total) for row in rows if row[kind]]
        series.append(Series(f"{kind} ({total:,})", points, "bars", SCORE_BIN))
    beyond = any(row["score"] <= -MAX_SCORE or row["score"] >= MAX_SCORE - SCORE_BIN for row in rows)
    label = "score, log odds" + (f", beyond ±{MAX_SCORE} in the outermost bins" if beyond else "")
    return _plot("Scores of candidates", label, "% of these", *series)


def _rewards(rows: list[Row]) -> Markup | None:
    points = [(row["reward"], float(row["ticks"])) for row in rows]
    name = f"ticks ({sum(row['ticks'] for row in rows):,})"
    return _plot("Rewards of ticks", "reward", "ticks", Series(name, points, "bars", REWARD_BIN))


def _ticks(rows: list[Row]) -> Markup | None:
    points = [(float(row["tick"]), row["reward"]) for row in rows if row["reward"] is not None]
    series = Series("mean over traces", points if len(points) > 1 else [])
    return _plot("Reward along a trace", "tick", "mean reward", series, whole_x=True)


def _calibration(rows: list[Row]) -> Markup | None:
    series = []
    for type in list(dict.fromkeys(row["type"] for row in rows))[:MAX_CURVES]:
        own = [row for row in rows if row["type"] == type]
        points = [(row["predicted"], row["observed"]) for row in own]
        series.append(Series(f"{type} ({sum(row['labels'] for row in own):,})", points))
    title = "Predicted and observed successes"
    return _plot(title, "probability of yes", "share that ran", *series, references=[plot.DIAGONAL])


def _rate(report: Report, column: str, title: str, per_seconds: float) -> Markup | None:
    width = report["part"]
    length, unit = next((unit for unit in UNITS if width * 60 >= 10 * unit[0]), UNITS[-1])
    # Bins in which nothing happened have no row.
    amounts = {int(row["seconds"] / width): float(row[column]) for row in report["throughput"]}
    points = [
        (number * width / length, amounts.get(number, 0.0) * per_seconds / width)
        for number in range(max(amounts, default=-1) + 1)
    ]
    series = Series(f"in each {duration(width)}", points, "bars", width / length)
    return _plot(title, f"{unit} since the start", title.lower(), series)


def _model_time(rows: list[Row]) -> Markup | None:
    amounts = [(f"{row['kind']} {row['what'] or ''}".strip(), row["model_seconds"]) for row in rows]
    amounts = [(name, seconds) for name, seconds in amounts if seconds > 0]
    if rest := amounts[MAX_BARS:]:
        amounts = [*amounts[:MAX_BARS], (f"{len(rest)} others", sum(seconds for _, seconds in rest))]
    bars = [Bar(name, seconds, seconds_text(seconds)) for name, seconds in amounts]
    label = "waited for model servers, by all steps together"
    return plot.bars("Where model time went", label, bars, inline=True) if bars else None


def _counts(title: str, rows: list[Row], name: str, value: str) -> Markup | None:
    bars = [Bar(row[name].replace("_", " "), row[value], f"{row[value]:,}") for row in rows]
    return plot.bars(title, "candidates", bars, inline=True) if any(bar.value for bar in bars) else None


def _programs(unsorted: list[float]) -> Markup | None:
    scores = sorted(unsorted)
    if len(scores) < 2:
        return None
    # The lowest twentieth shares a bin: a few very bad programs would compress the scale.
    low, high = scores[len(scores) // 20], scores[-1]
    width = (high - low) / PROGRAM_BINS or 1.0
    counts = Counter(max(0, min(PROGRAM_BINS - 1, int((score - low) / width))) for score in scores)
    points = [(low + number * width, float(count)) for number, count in sorted(counts.items())]
    series = Series(f"programs with a score ({len(scores):,})", points, "bars", width)
    return _plot("Scores of programs", "score; the lowest twentieth in the first bin", "programs", series)
