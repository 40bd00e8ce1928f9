"""Two traces side by side, and two jobs by their measures."""

from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import groupby, zip_longest
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from weavegen import sql
from weavegen.database import Connection, Database
from weavegen.errors import required
from weavegen.store import reports
from weavegen.viewer import plot, traces
from weavegen.viewer.differences import difference
from weavegen.viewer.plot import Series
from weavegen.viewer.responses import page, query_number

TICKS_PER_PAGE = 4
SCORED_CANDIDATES = 50_000
"""The distribution of scores is that of about so many candidates of a job: to read all of a large job takes minutes."""
TABLES = ("measures", "scores", "errors", "settings")
"""Queries of sql/compare/ about two jobs."""

Row = dict[str, Any]


class Compare:
    """The pages that compare."""

    def __init__(self, reader: Database) -> None:
        self.reader = reader

    def traces(self, request: Request) -> Response:
        """Two traces tick by tick, from the first block on that differs, or from ?tick. `?diff=1`: as differences."""
        with self.reader.connect() as conn:
            both = [traces.trace(conn, number) for number in numbers(request)]
            ids = [trace["id"] for trace in both]
            parting = sql.run(conn, "viewer/compare/parting", a=ids[0], b=ids[1]).scalar_one()
            ticks = [traces.ticks(conn, id) for id in ids]
            parted = [row["number"] for row in ticks[0] if parting is not None and row["first_block"] <= parting]
            first = query_number(request, "tick")
            first = max(parted, default=0) if first is None else first
            end = min(first + TICKS_PER_PAGE, max(map(len, ticks)))
            left, right = (blocks(conn, one, rows[first:end]) for one, rows in zip(both, ticks, strict=True))
        return page(
            "compare_traces.html",
            traces=both,
            parting=parting,
            rewards=[{row["number"]: row["reward"] for row in rows} for rows in ticks],
            ticks=[(number, list(pairs(left.get(number, []), right.get(number, [])))) for number in range(first, end)],
            around=(max(0, first - TICKS_PER_PAGE) if first else None, end if end < max(map(len, ticks)) else None),
            difference=difference if request.query_params.get("diff") == "1" else None,
        )

    def jobs(self, request: Request) -> Response:
        """Two jobs: success, rewards, errors, yield and cost with 95% intervals, scores, and settings that differ."""
        with self.reader.connect() as conn:
            both = [reports.jobs(conn, number)[0] for number in numbers(request)]
            a, b = (job.id for job in both)
            tables = {name: traces.rows(conn, f"compare/{name}", a=a, b=b, most=SCORED_CANDIDATES) for name in TABLES}
            age = reports.materialised(conn, "tick_stats").get("tick_stats")
        by_job = groupby(tables["scores"], lambda row: row["job_id"])
        lines = [Series(f"job {job}", [(row["score"], 100 * row["share"]) for row in rows]) for job, rows in by_job]
        axes = ("Scores of candidates", "log odds", "% of the candidates shown")
        picture = plot.svg(*axes, lines, inline=True) if lines else None
        return page("compare_jobs.html", jobs=both, picture=picture, age=age, most=SCORED_CANDIDATES, **tables)


def numbers(request: Request) -> tuple[int, int]:
    """The two numbers in the query string. Raises UsageError if one is missing."""
    a, b = (query_number(request, name) for name in ("a", "b"))
    need = "give the numbers of both: ?a=1&b=2"
    return required(a, need), required(b, need)


def blocks(conn: Connection, trace: Row, ticks: list[Row]) -> dict[int, list[Row]]:
    """The blocks of these consecutive ticks, by the tick's number."""
    if not ticks:
        return {}
    end = ticks[-1]["next_block"]
    by_tick: dict[int, list[Row]] = {}
    for block in traces.blocks(conn, trace["id"], ticks[0]["first_block"], trace["blocks"] if end is None else end):
        # By position: after a subagent's ticks, the calling tick continues under its own number.
        number = max(tick["number"] for tick in ticks if tick["first_block"] <= block["index"])
        by_tick.setdefault(number, []).append(block)
    return by_tick


def pairs(left: list[Row], right: list[Row]) -> Iterator[tuple[Row | None, Row | None]]:
    """The blocks of a tick in pairs, in order: of one type where possible; None where a trace has no block there."""
    types = [[block["type"] for block in side] for side in (left, right)]
    for _, a, b, c, d in SequenceMatcher(None, types[0], types[1], autojunk=False).get_opcodes():
        yield from zip_longest(left[a:b], right[c:d])
