"""The figures of a job's report, from queries of the views by the read-only role."""

import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import sqlalchemy as sa

from weavegen import sql
from weavegen.config import SIMULATED_MODEL
from weavegen.errors import UsageError
from weavegen.exports.releases.manifest import code_sha256
from weavegen.kernel import settings
from weavegen.store import reports, views
from weavegen.version import __version__

VIEWS = [
    "tick_stats", "block_stats", "candidate_stats", "step_times", "errors_by_stage", "evaluator_calibration",
    "question_stats",
]  # fmt: skip
"""The materialised views that the queries read."""
TIME_BINS = 60
"""Approximate number of bins of the time axis."""
BIN_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
"""Allowed widths of these bins; wider bins are whole days."""
SCORE_BIN = 0.5
"""Width of the bins of scores, log odds."""
MAX_SCORE = 12
"""Scores beyond this, positive or negative, are in the outermost bins."""
REWARD_BIN = 0.025
"""Width of the bins of rewards, which lie between 0 and 0.5."""
PARAMETERS = {
    "bin_width": SCORE_BIN, "max_score": MAX_SCORE, "reward_bin_width": REWARD_BIN,
    "max_traces": 40, "examples": 3, "excerpt": 4_000,
}  # fmt: skip
"""Values in all queries: also the traces listed, the best and the worst examples, and the characters of a text."""
TABLES = (
    "called", "bootstraps", "traces", "blocks", "scores", "rewards", "ticks", "calibration", "questions", "time",
    "rejections", "penalties", "errors", "conversations", "programs", "revisions", "params", "rubrics",
)  # fmt: skip
"""Fields of Report that are the result of the query with their name."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Report:
    """The figures of a job. A list is a table, with a dict of columns for each row. None is an unknown value."""

    made_at: datetime.datetime
    version: str
    """Of the weavegen that made the report."""
    code_sha256: str
    """Of the files of that weavegen, hexadecimal."""
    database: str
    """Version of PostgreSQL."""
    as_of: datetime.datetime | None
    """Refresh time of the oldest materialised view."""
    simulated: bool
    """Whether the simulated model wrote some of the texts."""
    job: Row
    sums: Row
    """The job's row of the view yield_by_job."""
    called: list[Row]
    """Jobs that traces of this job called. No other figure counts them."""
    bootstraps: list[Row]
    traces: list[Row]
    """The traces with the highest rewards, at most `max_traces`."""
    blocks: list[Row]
    """By type."""
    scores: list[Row]
    """By bin: `score` is its lower end, SCORE_BIN its width."""
    rewards: list[Row]
    """By bin: `reward` is its lower end, REWARD_BIN its width."""
    ticks: list[Row]
    """Means over the traces, by number of the tick."""
    calibration: list[Row]
    """By type and tenth of the probability."""
    questions: list[Row]
    part: float
    """Width of a bin of the time axis, in seconds."""
    throughput: list[Row]
    """Blocks recorded and tokens sampled, by bin of the time axis."""
    time: list[Row]
    """By kind of step and its purpose."""
    cost: Row
    rejections: list[Row]
    penalties: list[Row]
    errors: list[Row]
    best: list[Row]
    """Blocks with the highest scores."""
    worst: list[Row]
    conversations: list[Row]
    """Successful ones first."""
    programs: list[Row]
    """Of a search for a program: the best and the worst."""
    program_scores: list[float]
    revisions: list[Row]
    """Revisions of the settings: what differs from the defaults."""
    effective: Row | None
    """All settings of the newest revision. None if this version can't read them."""
    params: list[Row]
    rubrics: list[Row]


def refresh(conn: sa.Connection, job: int) -> Iterator[str]:
    """Refresh the views that are older than the job's last change. Yields the name of each.

    Raises UsageError if there is no such job.
    """
    reports.jobs(conn, job)
    stale = conn.execute(sql.load("viewer/report/stale_views"), {"job": job, "names": VIEWS}).scalars().all()
    conn.rollback()
    for refreshed in views.refresh(conn, stale) if stale else ():
        yield refreshed.view


def read(conn: sa.Connection, job: int, gpus: int = 1, seconds: float = 600.0, *, simulation: bool) -> Report:
    """Query the figures of a job.

    `gpus`: of each model server. `seconds`: time limit of each query. `simulation`: whether this installation
    serves the simulated model to jobs that name no model.

    Raises UsageError if there is no such job, or a query fails.
    """
    summary = reports.jobs(conn, job)[0]
    conn.rollback()

    def rows(name: str, **parameters: float) -> list[Row]:
        values = {"job": job, **PARAMETERS, **parameters}
        # The reader's query takes no parameters; these are numbers.
        query = re.sub(r"(?<!:):([a-z_]+)", lambda match: str(values[match[1]]), sql.load(f"viewer/report/{name}").text)
        columns, found = reports.select(conn, query, seconds, None)
        return [dict(zip(columns, map(_float, row), strict=True)) for row in found]

    tables: dict[str, Any] = {name: rows(name) for name in TABLES}
    [about], [sums], [server] = rows("job"), rows("sums"), rows("server")
    sums["candidates_per_block"] = summary.candidates_per_block
    bin_seconds = time_bin((sums["seconds"] or 0.0) / TIME_BINS)
    return Report(
        made_at=datetime.datetime.now(datetime.UTC),
        version=__version__,
        code_sha256=code_sha256(),
        database=server["version"],
        as_of=server["as_of"],
        simulated=about["model"] == SIMULATED_MODEL or (about["model"] is None and simulation),
        job=about,
        sums=sums,
        part=bin_seconds,
        throughput=rows("throughput", part=int(bin_seconds)),
        cost=cost(sums, rows("prompts")[0], gpus),
        best=rows("examples", sign=1),
        worst=rows("examples", sign=-1),
        program_scores=[row["score"] for row in rows("program_scores")],
        effective=effective(tables["revisions"][-1]["settings"]),
        **tables,
    )


def cost(sums: Row, prompts: Row, gpus: int) -> Row:
    """The cost of a kept megabyte; docs/report.md has the formulas. None if nothing was kept, or it is unknown."""
    kept = sums["kept_megabytes"] or None
    sampled, seconds, servers = sums["sampled_tokens"], sums["seconds"], sums["servers"]

    def per_megabyte(value: float | None) -> float | None:
        return None if kept is None or value is None else float(value) / kept

    server_seconds = None if seconds is None or not servers else seconds * servers
    return {
        "kept_megabytes": kept,
        "gpus_per_server": gpus,
        "sampled_tokens": per_megabyte(sampled),
        "computed_tokens": per_megabyte(None if prompts["computed"] is None else float(sampled + prompts["computed"])),
        "told_share": prompts["told_share"],
        "cached_share": prompts["cached_share"],
        "model_seconds": per_megabyte(sums["model_seconds"]),
        "server_seconds": per_megabyte(server_seconds),
        "gpu_seconds": per_megabyte(None if server_seconds is None else server_seconds * gpus),
    }


def effective(values: Row) -> Row | None:
    """All settings with their defaults. None if another version wrote them and this one can't read them."""
    try:
        return dict(msgspec.to_builtins(settings.settings(values)))
    except UsageError:
        return None


def time_bin(seconds: float) -> float:
    """The next allowed width of a bin of the time axis, in seconds."""
    return float(next((width for width in BIN_SECONDS if width >= seconds), 86400 * -(-seconds // 86400)))


def _float(value: Any) -> Any:
    """PostgreSQL's numeric values as floats: neither plots nor JSON accept Decimal."""
    return float(value) if isinstance(value, Decimal) else value
