"""A report as one HTML page: nothing is fetched, no script runs, and whatever was recorded is shown as text.

Texts in it were written by models and by programs that models wrote. Jinja escapes all of them, characters that
are no text are replaced, and the page's own policy (Content-Security-Policy) allows its one style sheet alone.
"""

import base64
import datetime
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from weavegen.exports.card import SIMULATED
from weavegen.text import bytes_text, harmless
from weavegen.viewer import plot
from weavegen.viewer.plot import Bar, Mark, Series
from weavegen.viewer.report.read import FARTHEST, REWARD_STEP, STEP, Report, Row

HERE = Path(__file__).parent
UNKNOWN = "\N{EN DASH}"
MOST_BARS = 12
UNIT = ((1.0, "seconds"), (60.0, "minutes"), (3600.0, "hours"), (86400.0, "days"))


def html(report: Report) -> str:
    """The page."""
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_shown,
    )  # fmt: skip
    environment.filters |= {
        "bytes": lambda value: UNKNOWN if value is None else bytes_text(value),
        "share": lambda value: UNKNOWN if value is None else f"{value:.1%}",
        "number": number,
        "duration": duration,
        "json": lambda value: msgspec.json.encode(value).decode(),
        "time": time,
    }
    return environment.get_template("page.html").render(
        r=report,
        style=Markup(style()),
        policy=policy(),
        simulated=SIMULATED,
        plots={name: Markup(picture) for name, picture in pictures(report).items()},
        settings=flat(report.effective) if report.effective is not None else None,
        revisions=[row | {"rows": flat(row["settings"])} for row in report.revisions],
        score_step=STEP,
    )


def style() -> str:
    """The one style sheet, which stands in the page."""
    return (HERE / "page.css").read_text() + plot.css()


def policy() -> str:
    """The page's Content-Security-Policy: this style sheet, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _shown(value: Any) -> Any:
    """What stands in the page for a value: nothing for None, text less what is no text."""
    if value is None:
        return ""
    if isinstance(value, Markup):
        return Markup(harmless(value))
    return harmless(value) if isinstance(value, str) else value


def number(value: float | None, digits: int = 0) -> str:
    """With commas; a dash for what is not known."""
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def duration(seconds: float | None) -> str:
    """A length of time, in one unit."""
    if seconds is None:
        return UNKNOWN
    length, name = next((unit for unit in reversed(UNIT) if seconds >= 2 * unit[0]), UNIT[0])
    amount = seconds / length
    return f"{amount:,.{0 if amount >= 100 or amount == round(amount) else 1}f} {name}"


def time(value: datetime.datetime | None) -> str:
    """To the second, UTC."""
    return UNKNOWN if value is None else value.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def flat(values: Row) -> list[tuple[str, str]]:
    """Settings as KEY and JSON, those of a block type as TYPE.KEY, in order."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if key == "types" and isinstance(value, dict):
            for type, own in value.items():
                found |= (
                    {f"{type}.{name}": one for name, one in own.items()} if isinstance(own, dict) else {type: own}
                )
        else:
            found[key] = value
    return [(key, msgspec.json.encode(value).decode()) for key, value in sorted(found.items())]


def pictures(report: Report) -> dict[str, str]:
    """The plots that there is something to draw in, by name."""
    found = {
        "scores": _scores(report),
        "rewards": _rewards(report),
        "ticks": _ticks(report),
        "calibration": _calibration(report),
        "blocks_rate": _rate(report, "blocks", "blocks a minute", 60.0),
        "tokens_rate": _rate(report, "tokens", "sampled tokens a second", 1.0),
        "model_time": _model_time(report),
        "rejections": _counts("Why candidates lost", "candidates", report.rejections, "reason", "candidates"),
        "penalties": _counts("What linting found", "candidates", report.penalties, "penalty", "penalised"),
        "programs": _programs(report),
    }
    return {name: picture for name, picture in found.items() if picture}


def _scores(report: Report) -> str:
    """Shares, not counts: there are several losers for each that was chosen."""
    sums = {kind: sum(row[kind] for row in report.scores) for kind in ("lost", "chosen")}
    series = [
        Series(
            f"{kind} ({sums[kind]:,})",
            [(row["score"], 100 * row[kind] / sums[kind]) for row in report.scores if row[kind]],
            "bars",
            STEP,
        )
        for kind in ("lost", "chosen")
        if sums[kind]
    ]
    if not series:
        return ""
    beyond = f", beyond ±{FARTHEST} in the outermost bins" if _beyond(report.scores) else ""
    return plot.svg("Scores of candidates", f"score, log odds{beyond}", "% of these", series, inline=True)


def _beyond(rows: Sequence[Row]) -> bool:
    return any(row["score"] <= -FARTHEST or row["score"] >= FARTHEST - STEP for row in rows)


def _rewards(report: Report) -> str:
    points = [(row["reward"], float(row["ticks"])) for row in report.rewards]
    if not points:
        return ""
    series = [Series(f"ticks ({sum(row['ticks'] for row in report.rewards):,})", points, "bars", REWARD_STEP)]
    return plot.svg("Rewards of ticks", "reward", "ticks", series, inline=True)


def _ticks(report: Report) -> str:
    points = [(float(row["tick"]), row["reward"]) for row in report.ticks if row["reward"] is not None]
    if len(points) < 2:
        return ""
    return plot.svg(
        "Reward along a trace",
        "tick",
        "mean reward",
        [Series("mean over traces", points)],
        whole=True,
        inline=True,
    )


def _calibration(report: Report) -> str:
    types = list(dict.fromkeys(row["type"] for row in report.calibration))
    series = [
        Series(
            f"{type} ({sum(row['labels'] for row in report.calibration if row['type'] == type):,})",
            [(row["predicted"], row["observed"]) for row in report.calibration if row["type"] == type],
        )
        for type in types[:4]
    ]
    if not series:
        return ""
    mark = Mark("calibrated", 0.0, ((0.0, 0.0), (1.0, 1.0)))
    return plot.svg(
        "Did what it believed in run?", "probability of yes", "share that ran", series, [mark], inline=True
    )


def _rate(report: Report, column: str, name: str, per: float) -> str:
    if not report.throughput:
        return ""
    length, unit = next((unit for unit in reversed(UNIT) if report.part * 60 >= 10 * unit[0]), UNIT[0])
    last = int(max(row["seconds"] for row in report.throughput) / report.part)
    # Parts in which nothing happened are no rows, and count 0.
    values = {int(row["seconds"] / report.part): float(row[column]) for row in report.throughput}
    points = [
        (at * report.part / length, values.get(at, 0.0) * per / report.part) for at in range(max(0, last) + 1)
    ]
    series = [
        Series(
            f"in each {duration(report.part)}" if report.part > 1 else "in each second",
            points,
            "bars",
            report.part / length,
        )
    ]
    return plot.svg(f"{name[0].upper()}{name[1:]}", f"{unit} since the start", name, series, inline=True)


def _model_time(report: Report) -> str:
    rows = [row for row in report.time if row["model_seconds"] > 0]
    shown, rest = rows[:MOST_BARS], rows[MOST_BARS:]
    bars = [
        Bar(f"{row['kind']} {row['what'] or ''}".strip(), row["model_seconds"], duration(row["model_seconds"]))
        for row in shown
    ]
    if rest:
        left = sum(row["model_seconds"] for row in rest)
        bars.append(Bar(f"{len(rest)} others", left, duration(left)))
    if not bars:
        return ""
    about = "waited for model servers, many steps at a time"
    return plot.bars("Where model time went", about, _harmless(bars), inline=True)


def _counts(title: str, x: str, rows: Sequence[Row], name: str, value: str) -> str:
    total = sum(row[value] for row in rows)
    if not total:
        return ""
    bars = [Bar(row[name].replace("_", " "), row[value], f"{row[value]:,}") for row in rows]
    return plot.bars(title, x, _harmless(bars), inline=True)


def _programs(report: Report) -> str:
    scores = sorted(report.program_scores)
    if len(scores) < 2:
        return ""
    # A few hopeless programs would press all others into one bin.
    low, high = scores[len(scores) // 20], scores[-1]
    width = (high - low) / 30 or 1.0
    bins: dict[int, int] = {}
    for score in scores:
        at = max(0, min(29, int((score - low) / width)))
        bins[at] = bins.get(at, 0) + 1
    points = [(low + at * width, float(count)) for at, count in sorted(bins.items())]
    series = [Series(f"programs with a score ({len(scores):,})", points, "bars", width)]
    return plot.svg(
        "Scores of programs", "score; the lowest twentieth in the first bin", "programs", series, inline=True
    )


def _harmless(bars: Sequence[Bar]) -> list[Bar]:
    return [Bar(harmless(bar.name), bar.value, bar.text) for bar in bars]
