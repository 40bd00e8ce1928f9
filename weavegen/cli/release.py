"""The command that freezes an export: what was in it can be checked, and written again byte for byte."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from weavegen import config as configuration
from weavegen.cli.app import Json, app, out, print_json, reading
from weavegen.cli.export import bar, size
from weavegen.errors import UsageError
from weavegen.monitoring import display
from weavegen.trace.render import one_line

LONGEST_NAME = 100


@app.command()
def release(
    name: Annotated[str | None, typer.Argument(help="What to call it.")] = None,
    where: Annotated[
        str | None, typer.Option(help="An SQL condition over the format's view; all rows by default.")
    ] = None,
    out_: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder to write. It must not exist.")
    ] = None,
    format: Annotated[str, typer.Option("--format", "-f", help="One of `weavegen export --list`.")] = "text",
    split: Annotated[str, typer.Option(help="Shares of the traces, such as train=0.95,test=0.05.")] = "train=1",
    limit: Annotated[int | None, typer.Option(min=1, help="The first so many rows of the view.")] = None,
    context: Annotated[int | None, typer.Option(min=1, help="As for export.")] = None,
    context_bytes: Annotated[int | None, typer.Option(min=1, help="As for export.")] = None,
    per_block: Annotated[int | None, typer.Option(min=1, help="As for export.")] = None,
    shard_size: Annotated[str, typer.Option(help="A new file after so many bytes, such as 500M.")] = "500M",
    near_duplicates: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Remove rows that are so similar to a better one; 0: keep them."),
    ] = 0.8,
    list_: Annotated[bool, typer.Option("--list", help="List the releases.")] = False,
    verify: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Compare a folder with the release. Exit code 1: it differs."),
    ] = None,
    rebuild: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write it again, of the rows that it was made of.")
    ] = None,
    json: Json = False,
) -> None:
    """Write an export that stays what it is: its rows are kept, and a hash of each file.

    Only traces that are over are taken. Near-duplicates are removed: of two the one with the higher reward stays,
    then the older. The card tells what retrieval has shown to the model that it should not have.

    Example: weavegen release pairs-1 --format dpo --where "margin > 1" --split train=0.9,test=0.1 --out pairs-1
    """
    from weavegen import exports
    from weavegen.exports import selection, write
    from weavegen.exports.releases.freeze import CHANGED, again, differing, freeze
    from weavegen.services import model_server
    from weavegen.store import releases

    if list_:
        with reading() as conn:
            show(releases.rows(conn), json)
        return
    if name is None or sum(one is not None for one in (out_, verify, rebuild)) != 1:
        raise UsageError("give a NAME with --out, --verify or --rebuild, or --list")
    found: list[str] = []
    written = None
    with reading() as conn, bar(display.console(stderr=True)) as progress:
        task = progress.add_task("release", total=None)

        def told(what: str, done: int, count: int) -> None:
            progress.update(task, description=what, completed=done, total=count)

        if verify is not None:
            found = differing(conn, name, verify)
        elif rebuild is not None:
            written = again(conn, name, rebuild, told)
        else:
            assert out_ is not None
            wanted = write.Export(
                format=exports.find(format),
                out=out_,
                where=where,
                splits=selection.read_splits(split),
                limit=limit,
                options=exports.Options(context=context, context_bytes=context_bytes, per_block=per_block),
                shard_bytes=size(shard_size),
                simulation=model_server.simulated(configuration.load()),
            )
            written = freeze(conn, checked(name), wanted, near_duplicates or None, configuration.load(), told)
        row = releases.load(conn, name)
    folder = verify or rebuild or out_
    if json:
        print_json({"release": name, "folder": str(folder), "differences": found, "facts": row.facts})
    elif found:
        for line in found:
            out.print(display.cell(line))
    elif written is None:
        out.print(f"{folder}: nothing differs", markup=False)
    else:
        rows = row.facts["rows"]
        out.print(f"{folder}: release {name}, {rows['kept']} rows, see README.md there", markup=False)
        if rows["near_duplicates"] or rows["open"]:
            out.print(
                f"left out: {rows['near_duplicates']} near-duplicates, {rows['open']} of traces that still run",
                markup=False,
            )
        if row.format in CHANGED:
            out.print(
                f"the format {row.format} searches the whole corpus while it is written: once that has grown, "
                "--rebuild may find that it comes out otherwise",
                style="yellow",
            )
        if written.simulated:
            out.print("SIMULATED model data: good for trying a pipeline, not for training", markup=False)
    raise typer.Exit(1 if found else 0)


def checked(name: str) -> str:
    """A name for a release. Raises UsageError."""
    if not name or name != one_line(name) or len(name) > LONGEST_NAME or name.startswith("-"):
        raise UsageError(
            f"{name!r:.50} can't be the name of a release: give one line of {LONGEST_NAME} characters"
        )
    return name


def show(rows: Any, json: bool) -> None:
    """Print releases."""
    if json:
        print_json(
            [
                {
                    "release": row.name, "format": row.format, "rows": row.rows, "created_at": row.created_at,
                    "version": row.version, "manifest_sha256": row.manifest_sha256, "condition": row.condition,
                }
                for row in rows
            ]
        )  # fmt: skip
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("release", "format", "rows", "made", "by weavegen", "manifest", "condition"):
        table.add_column(title, justify="right" if title == "rows" else "left")
    for row in rows:
        made = row.created_at.astimezone().strftime("%Y-%m-%d %H:%M")
        table.add_row(
            display.cell(row.name), row.format, str(row.rows), made, row.version, row.manifest_sha256[:12],
            display.cell(row.condition),
        )  # fmt: skip
    out.print(table)
