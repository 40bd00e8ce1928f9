"""The table of a job's traces: filters and order are in the address, so that it can be sent."""

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from weavegen import sql
from weavegen.database import Connection
from weavegen.errors import UsageError

TEXTS = ("status", "result", "bootstrap", "tag")
RANGES = ("reward", "errors", "blocks")
NUMBERS = tuple(f"{name}_{end}" for name in RANGES for end in ("min", "max"))
COLUMNS = (
    "number", "bootstrap", "status", "result", "ticks", "blocks", "bytes", "tokens", "reward", "errors", "backtracks",
    "candidates_per_block", "seconds",
)  # fmt: skip
"""Columns by which the table can be sorted; with a minus before the name, from the highest to the lowest."""
PER_PAGE = 100

Asked = dict[str, str]
"""The filters and the order as in the address: only those that are given."""


def asked(query: Mapping[str, str]) -> Asked:
    """What an address asks for. Raises UsageError if the order or a number is wrong."""
    given = {name: query.get(name, "").strip() for name in (*TEXTS, *NUMBERS, "sort")}
    for name in NUMBERS:
        try:
            finite = math.isfinite(float(given[name] or 0))
        except ValueError:
            finite = False
        if not finite:
            raise UsageError(f"{name} {given[name]!r:.40} is not a number")
    if given["sort"].removeprefix("-") not in ("", *COLUMNS):
        raise UsageError(f"there is no column {given['sort']!r:.40}: sort by one of {', '.join(COLUMNS)}")
    return {name: value for name, value in given.items() if value}


def address(asked: Asked, **changes: str | int | None) -> str:
    """The query string with these changes; None leaves a filter out."""
    return "?" + urlencode({name: value for name, value in (asked | changes).items() if value is not None})


def rows(conn: Connection, job_id: int, asked: Asked, page: int) -> tuple[list[dict[str, Any]], bool]:
    """The traces on a page of the table, and whether there are more."""
    sort = asked.get("sort", "number")
    order = sort.removeprefix("-") + (" desc" if sort.startswith("-") else "")
    values = {name: asked.get(name) for name in TEXTS}
    ends = {name: float(asked[name]) if name in asked else None for name in NUMBERS}
    part = {"job": job_id, "limit": PER_PAGE + 1, "offset": page * PER_PAGE}
    found = conn.execute(sql.load("viewer/job_traces", order=order), {**values, **ends, **part}).mappings()
    return found[:PER_PAGE], len(found) > PER_PAGE
