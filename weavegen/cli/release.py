"""The command release: an export that stays the same. It can be verified, and written again byte for byte."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from weavegen import config as configuration
from weavegen import sql
from weavegen.cli import display
from weavegen.cli.app import SIMULATED_DATA, Result, command, progress_bar, reading
from weavegen.cli.export import ExportOptions
from weavegen.errors import UsageError
from weavegen.store import releases
from weavegen.trace.render import one_line

MAX_NAME_CHARS = 100
LISTED: display.Fields = {
    "release": "release",
    "format": "format",
    "rows": "rows",
    "made": "created_at",
    "by weavegen": "version",
    "manifest": lambda row: row["manifest_sha256"][:12],
    "condition": "condition",
}
"""Columns of --list."""


@command()
def release(
    *,
    name: Annotated[str | None, typer.Argument(help="The release's name.")] = None,
    format: Annotated[str, typer.Option("--format", "-f", help="A format of `weavegen export --list`.")] = "text",
    options: ExportOptions,
    near_duplicates: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Remove rows at least this similar to a better row; 0: remove none.")
    ] = 0.8,
    list_: Annotated[bool, typer.Option("--list", help="List the releases.")] = False,
    verify: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Compare a folder with the release. The exit code is 1 if they differ."),
    ] = None,
    rebuild: Annotated[Path | None, typer.Option(metavar="DIR", help="Write a release again, from its rows.")] = None,
) -> Result:
    """Write an export that stays the same: the database keeps the keys of its rows and a hash of each file.

    It has only traces that are over. Of two near-duplicates, the one with the higher reward stays, and of equal
    rewards the older one. The dataset card lists what retrieval showed to the model across splits.

    Example: weavegen release pairs-1 --format dpo --where "margin > 1" --split train=0.9,test=0.1 --out pairs-1
    """
    from weavegen.exports.releases.freeze import again, differing, freeze

    if list_:
        with reading() as conn:
            rows = sql.run(conn, "store/releases").mappings()
        return Result(rows, display.table(rows, LISTED))
    if name is None or sum(folder is not None for folder in (options.out, verify, rebuild)) != 1:
        raise UsageError("give a NAME with --out, --verify or --rebuild, or --list")
    differences: list[str] = []
    written = None
    with reading() as conn, progress_bar("release") as progress:
        if verify is not None:
            differences = differing(conn, name, verify)
        elif rebuild is not None:
            written = again(conn, name, rebuild, progress)
        else:
            order = options.order(format)
            written = freeze(conn, checked(name), order, near_duplicates or None, configuration.load(), progress)
        row = releases.load(conn, name)
    folder = verify or rebuild or options.out
    value = {"release": name, "folder": str(folder), "differences": differences, "facts": row.facts}
    return Result(value, report(row, name, folder, differences, written), code=1 if differences else 0)


def report(row: Any, name: str, folder: Path | None, differences: list[str], written: Any) -> Iterator[RenderableType]:
    """What was found or written, in lines."""
    from weavegen.exports.releases.freeze import CHANGED

    if written is None:
        yield from map(display.cell, differences or [f"{folder}: nothing differs"])
        return
    rows = row.facts["rows"]
    yield f"{folder}: release {name}, {rows['kept']} rows, see README.md there"
    if rows["near_duplicates"] or rows["open"]:
        yield f"left out: {rows['near_duplicates']} near-duplicates, {rows['open']} of traces that still run"
    if row.format in CHANGED:
        yield Text(f"--rebuild can't write it again once {CHANGED[row.format]}", "yellow")
    if written.simulated:
        yield SIMULATED_DATA


def checked(name: str) -> str:
    """The name, if it is one for a release. Raises UsageError."""
    if not name or name != one_line(name) or len(name) > MAX_NAME_CHARS or name.startswith("-"):
        raise UsageError(f"{name!r:.50} can't be the name of a release: give one line of {MAX_NAME_CHARS} characters")
    return name
