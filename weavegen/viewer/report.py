"""The figures of a job's report, from queries of the views by the read-only role."""

import datetime
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec

from weavegen import sql
from weavegen.config import SIMULATED_MODEL
from weavegen.database import Connection
from weavegen.errors import UsageError
from weavegen.exports.releases.manifest import code_sha256
from weavegen.kernel import settings
from weavegen.store import reports, views
from weavegen.version import __version__

VIEWS = [
    "tick_stats", "tick_sums", "block_stats", "candidate_stats", "step_times", "errors_by_stage",
    "evaluator_calibration", "question_stats",
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
    "rejections", "penalties", "errors", "conversations", "programs", "revisions", "params", "rubrics", "training",
)  # fmt: skip
"""Tables of a report, each the rows of the query with its name."""

Row = dict[str, Any]
Report = dict[str, Any]
"""The figures of a job. A list is a table, with a dict of columns for each row. None is an unknown value."""


def refresh(conn: Connection, job: int) -> Iterator[str]:
    """Refresh the views that are older than the job's last change. Yields the name of each.

    Raises UsageError if there is no such job.
    """
    reports.jobs(conn, job)
    stale = conn.execute(sql.load("viewer/report/stale_views"), {"job": job, "names": VIEWS}).scalars()
    conn.rollback()
    for refreshed in views.refresh(conn, stale) if stale else ():
        yield refreshed.view


def read(conn: Connection, job: int, gpus: int = 1, seconds: float = 600.0, *, simulation: bool) -> Report:
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
        # Neither plots nor JSON accept Decimal, which is PostgreSQL's numeric.
        plain = ([float(value) if isinstance(value, Decimal) else value for value in row] for row in found)
        return [dict(zip(columns, row, strict=True)) for row in plain]

    tables = {name: rows(name) for name in TABLES}
    [about], [sums], [server] = rows("job"), rows("sums"), rows("server")
    sums["candidates_per_block"] = summary.candidates_per_block
    least = (sums["seconds"] or 0.0) / TIME_BINS
    bin_seconds = float(next((width for width in BIN_SECONDS if width >= least), 86400 * -(-least // 86400)))
    return tables | {
        "made_at": datetime.datetime.now(datetime.UTC),
        "version": __version__,
        "code_sha256": code_sha256(),
        "database": server["version"],
        "as_of": server["as_of"],  # when the oldest materialised view was refreshed
        "simulated": about["model"] == SIMULATED_MODEL or (about["model"] is None and simulation),
        "job": about,
        "sums": sums,
        "part": bin_seconds,  # width of a bin of the time axis
        "throughput": rows("throughput", part=int(bin_seconds)),
        "cost": cost(sums, rows("prompts")[0], gpus),
        "best": rows("examples", sign=1),
        "worst": rows("examples", sign=-1),
        "program_scores": [row["score"] for row in rows("program_scores")],
        "effective": effective(tables["revisions"][-1]["settings"]),
    }


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
    """All settings, with defaults for those not in `values`. None if this version can't read another version's."""
    try:
        return dict(msgspec.to_builtins(settings.settings(values)))
    except UsageError:
        return None
