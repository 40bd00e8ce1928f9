"""The command export: the corpus in a trainer's format."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from weavegen import config as configuration
from weavegen.cli.app import Json, app, out, print_json, reading
from weavegen.cli.complete import export_formats
from weavegen.errors import UsageError
from weavegen.monitoring import display

if TYPE_CHECKING:
    from weavegen.exports import write

MOST_SHARDS = 1e12
UNITS = {"k": 1e3, "M": 1e6, "G": 1e9}


@app.command()
def export(
    format: Annotated[
        str | None, typer.Option("--format", "-f", help="One of --list.", autocompletion=export_formats)
    ] = None,
    out_: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder to write. It must not exist.")
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="An SQL condition over the format's view; all rows by default.")
    ] = None,
    split: Annotated[
        str,
        typer.Option(help="Shares of the traces, such as train=0.95,test=0.05. A trace is in one split alone."),
    ] = "train=1",
    limit: Annotated[int | None, typer.Option(min=1, help="The first so many rows of the view.")] = None,
    context: Annotated[
        int | None,
        typer.Option(min=1, help="text: cut traces between blocks into pieces of so many tokens at most."),
    ] = None,
    context_bytes: Annotated[
        int | None, typer.Option(min=1, help="text: the same in bytes, where no tokens were counted.")
    ] = None,
    per_block: Annotated[
        int | None, typer.Option(min=1, help="dpo: pairs of one block at most; kto: candidates of each label.")
    ] = None,
    shard_size: Annotated[str, typer.Option(help="A new file after so many bytes, such as 500M.")] = "500M",
    seconds: Annotated[float, typer.Option(min=0.1, help="That the condition may take.")] = 600.0,
    push: Annotated[
        str | None,
        typer.Option(help="atropos: send the groups to the server at this URL in place of writing a folder."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="The formats, their views and columns.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Only say how many rows and traces there are.")] = False,
    json: Json = False,
) -> None:
    """Write the corpus, or what a condition selects of it, as a folder that trainers read.

    Parquet shards and a dataset card, which `datasets.load_dataset(FOLDER)` opens as they are. The folder is there
    once it is whole; docs/exports.md describes each format.

    Example: weavegen export --format dpo --out pairs --where "margin > 1 and bootstrap = 'tictactoe.py'"
    """
    from weavegen import exports
    from weavegen.exports import selection, write
    from weavegen.services import model_server

    if list_:
        print_formats(format, json)
        return
    if format is None or (out_ is None and not dry_run and push is None):
        raise UsageError("give --format and --out; `weavegen export --list` shows the formats")
    if push is not None and (format != "atropos" or out_ is not None):
        raise UsageError("--push goes with --format atropos, and in place of --out")
    wanted = write.Export(
        format=exports.find(format),
        out=out_ or Path(),
        where=where,
        splits=selection.read_splits(split),
        limit=limit,
        options=exports.Options(context=context, context_bytes=context_bytes, per_block=per_block),
        shard_bytes=size(shard_size),
        seconds=seconds,
        simulation=model_server.simulated(configuration.load()),
    )
    if dry_run:
        with reading() as conn:
            found = write.preview(conn, wanted)
        if json:
            print_json(found | {"dry_run": True})
        for name in () if json else wanted.splits:
            out.print(f"{name}: {found['rows'][name]} rows of {found['traces'][name]} traces")
        return
    if push is not None:
        send(wanted, push, json)
        return
    try:
        with reading() as conn, bar(display.console(stderr=True)) as progress:
            task = progress.add_task(wanted.format.name, total=None)
            written = write.export(
                conn, wanted, progress=lambda done, count: progress.update(task, completed=done, total=count)
            )
    except KeyboardInterrupt:
        raise typer.Abort from None
    if json:
        told = dataclasses.asdict(written)
        told["origin"] = {
            name: sorted(value) if isinstance(value, set) else value for name, value in told["origin"].items()
        }
        print_json({"out": str(wanted.out), "format": format} | told)
        return
    for name, rows in written.rows.items():
        out.print(f"{name}: {rows} rows of {written.traces[name]} traces", markup=False)
    for reason, rows in sorted(written.left_out.items()):
        out.print(f"left out, {rows} rows: {reason}", markup=False)
    for what, rows in sorted(written.notes.items()):
        out.print(f"in {rows} rows: {what}", markup=False)
    if written.simulated:
        out.print("SIMULATED model data: good for trying a pipeline, not for training", markup=False)
    sizes = f"{display.bytes_text(written.text_bytes)} of text in {display.bytes_text(written.bytes)}"
    out.print(f"{wanted.out}: {sizes}, see README.md there", markup=False)


def send(wanted: "write.Export", url: str, json: bool) -> None:
    """Send what would be written to a running server."""
    from weavegen.exports.push import push

    try:
        with reading() as conn, bar(display.console(stderr=True)) as progress:
            task = progress.add_task("groups", total=None)
            pushed = push(
                conn, wanted, url, lambda done, count: progress.update(task, completed=done, total=count)
            )
    except KeyboardInterrupt:
        raise typer.Abort from None
    if json:
        print_json(dataclasses.asdict(pushed))
        return
    out.print(f"{pushed.groups} groups of {pushed.sequences} sequences were sent to {url}", markup=False)
    for reason, rows in sorted(pushed.left_out.items()):
        out.print(f"left out, {rows} groups: {reason}", markup=False)
    for what, rows in sorted(pushed.notes.items()):
        out.print(f"in {rows} groups: {what}", markup=False)


def bar(console: Console) -> Progress:
    """A bar on standard error, where that is a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def size(text: str) -> int:
    """Bytes from text such as 500M. Raises UsageError."""
    number, unit = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1.0)
    try:
        value = float(number) * unit
    except ValueError:
        value = 0.0
    if not 1 <= value <= MOST_SHARDS:
        raise UsageError(f"--shard-size {text!r} can't be read: give bytes, such as 500M or 2G")
    return int(value)


def print_formats(format: str | None, json: bool) -> None:
    """The formats, or one of them with its columns and those that --where may use."""
    from weavegen import exports
    from weavegen.exports.format import RowFormat, comments

    chosen = [exports.find(format)] if format is not None else list(exports.FORMATS.values())
    if json:
        print_json(
            [
                {
                    "format": one.name,
                    "about": one.about,
                    "view": one.view,
                    "options": sorted(one.takes),
                    "columns": comments(one.schema) if isinstance(one, RowFormat) else {},
                }
                for one in chosen
            ]
        )
        return
    table = Table(box=None)
    for name in ("format", "--where is over", "what it is"):
        table.add_column(name)
    for one in chosen:
        table.add_row(one.name, one.view, display.cell(one.about))
    out.print(table)
    for one in chosen if format is not None else ():
        if isinstance(one, RowFormat):
            columns = Table(box=None)
            for name in ("column", "type", "meaning"):
                columns.add_column(name)
            for name, text in comments(one.schema).items():
                columns.add_row(name, str(one.schema.field(name).type), display.cell(text))
            out.print("\ncolumns that are written:")
            out.print(columns)
    views = f"'{chosen[0].view}'::regclass" if format is not None else "'VIEW'::regclass"
    out.print(
        '\ncolumns that --where may use: weavegen sql "select attname, col_description(attrelid, attnum) from '
        f'pg_attribute where attrelid = {views} and attnum > 0"',
        markup=False,
    )
