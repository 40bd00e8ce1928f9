"""The command that freezes an export: what was in it can be checked, and written again byte for byte."""

import contextlib
import dataclasses
import datetime
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
import sqlalchemy as sa
import typer
from rich.table import Table

from weavegen import __version__, display, exports
from weavegen import config as configuration
from weavegen import release as parts
from weavegen.cli.app import Json, app, out, print_json, reading
from weavegen.cli.export import bar, size
from weavegen.config import Config
from weavegen.errors import ModelError, TransientError, UsageError, WeavegenError
from weavegen.exports import selection, write
from weavegen.exports.card import Written
from weavegen.release import CARD, MANIFEST, PROBE, SHOWN, Double, Key
from weavegen.render import one_line
from weavegen.sim import MODEL
from weavegen.store import releases

SECONDS = 600.0
"""That a condition may take."""
LONGEST_NAME = 100
CHANGED = {"retrieval": "the corpus that it searches has grown, or rows of it were changed or deleted"}
"""Formats whose rows depend on more than their traces: why they may come out otherwise."""
LEAST_ALIKE, MOST_ALIKE = 0.3, 0.95
"""Similarities from which on rows may be called near-duplicates; MinHash tells no finer differences."""
Told = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, of how much."""


def nothing(what: str, done: int, count: int) -> None:
    """Where nobody wants to be told."""


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
    if list_:
        with reading() as conn:
            show(releases.rows(conn), json)
        return
    if name is None or sum(one is not None for one in (out_, verify, rebuild)) != 1:
        raise UsageError("give a NAME with --out, --verify or --rebuild, or --list")
    with reading() as conn, bar(display.console(stderr=True)) as progress:
        task = progress.add_task("release", total=None)

        def told(what: str, done: int, count: int) -> None:
            progress.update(task, description=what, completed=done, total=count)

        if verify is not None:
            found = differing(conn, name, verify)
        elif rebuild is not None:
            again(conn, name, rebuild, told)
            found = []
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
                simulation=configuration.load().model_url is None,
            )
            freeze(conn, checked(name), wanted, near_duplicates or None, configuration.load(), told)
            found = []
        row = releases.load(conn, name)
    folder = verify or rebuild or out_
    if json:
        print_json({"release": name, "folder": str(folder), "differences": found, "facts": row.facts})
    elif found:
        for line in found:
            out.print(display.cell(line))
    elif verify is not None:
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
        if MODEL in row.facts["models"] or (row.facts["simulation"] and "" in row.facts["models"]):
            out.print("SIMULATED model data: good for trying a pipeline, not for training", markup=False)
    raise typer.Exit(1 if found else 0)


def checked(name: str) -> str:
    """A name for a release. Raises UsageError."""
    if not name or name != one_line(name) or len(name) > LONGEST_NAME or name.startswith("-"):
        raise UsageError(
            f"{name!r:.50} can't be the name of a release: give one line of {LONGEST_NAME} characters"
        )
    return name


def freeze(
    conn: sa.Connection,
    name: str,
    wanted: write.Export,
    threshold: float | None,
    config: Config,
    told: Told = nothing,
) -> None:
    """Write a release's folder, and what it is made of to the database: both, or neither. Raises UsageError."""
    format = wanted.format
    if threshold is not None and not releases.comparable(format.key):
        raise UsageError(f"rows of the format {format.name} can't be compared: give --near-duplicates 0")
    if threshold is not None and not LEAST_ALIKE <= threshold <= MOST_ALIKE:
        raise UsageError(
            f"--near-duplicates {threshold}: give 0, or a similarity from {LEAST_ALIKE} to {MOST_ALIKE}"
        )
    releases.free(conn, name)
    if wanted.out.exists():
        raise UsageError(f"{wanted.out} is there already: give --out a folder that is not, or remove it")
    with contextlib.ExitStack() as opened:

        def selected(keys: Iterable[Key]) -> selection.Selection:
            return opened.enter_context(contextlib.closing(selection.Selection(keys, len(format.key))))

        chosen = opened.enter_context(
            contextlib.closing(
                selection.select(conn, format, wanted.where, wanted.options, limit=wanted.limit, seconds=SECONDS)
            )
        )
        over = releases.over(conn, [trace for trace, _ in chosen.traces()])
        closed = selected(key for key in chosen if key[0] in over)
        removed = near_duplicates(conn, wanted, closed, threshold, told)
        doubled = {one.key for one in removed}
        kept = selected(key for key in closed if key not in doubled)
        if not kept.count:
            raise UsageError(
                f"{chosen.count} rows of the view {format.view} match, none in a trace that is over: nothing to do"
            )
        rows = {
            "found": chosen.count,
            "open": chosen.count - closed.count,
            "near_duplicates": len(removed),
            "kept": kept.count,
        }
        publish(conn, name, wanted, threshold, config, told, rows, removed, kept)


def publish(
    conn: sa.Connection,
    name: str,
    wanted: write.Export,
    threshold: float | None,
    config: Config,
    told: Told,
    rows: dict[str, int],
    removed: list[Double],
    kept: selection.Selection,
) -> None:
    """Write the folder of these rows, and the release to the database."""
    format = wanted.format
    inside = [trace for trace, _ in kept.traces()]

    @cache
    def split(trace: int) -> str:
        return selection.split_of(conn, trace, wanted.splits)

    facts = {
        "created_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "code_sha256": parts.code_sha256(),
        "libraries": parts.libraries(),
        "format": format.name,
        "view": format.view,
        "key": list(format.key),
        "condition": wanted.where,
        "limit": wanted.limit,
        "options": vars(wanted.options),
        "splits": wanted.splits,
        "simulation": wanted.simulation,
        "rows": rows,
        "near_duplicates": {
            "threshold": threshold,
            "examples": [vars(one) for one in removed[:SHOWN]],
        },
        "tokenizer": tokenizer(config, releases.tokens_of(conn, inside)),
        "contamination": releases.contamination(conn, inside, removed, threshold, split),
        **releases.about(conn, inside),
    }

    def seal(folder: Path, written: Written) -> None:
        files, sha256 = sign(folder, name, facts)
        releases.save(
            conn,
            kept,
            removed,
            name=name,
            format=format.name,
            condition=wanted.where,
            row_limit=wanted.limit,
            options=vars(wanted.options),
            splits=[[split, share] for split, share in wanted.splits.items()],
            shard_bytes=wanted.shard_bytes,
            threshold=threshold,
            key_width=len(format.key),
            rows=kept.count,
            facts=facts,
            version=__version__,
            code_sha256=facts["code_sha256"],
            manifest_sha256=sha256,
            files=files,
        )

    conn.rollback()
    write.export(
        conn,
        dataclasses.replace(wanted, extra=seal),
        keys=kept,
        progress=lambda done, count: told("write", done, count),
    )
    try:
        conn.commit()
    except sa.exc.DBAPIError:
        write.clear(wanted.out)
        wanted.out.rmdir()
        raise


def near_duplicates(
    conn: sa.Connection, wanted: write.Export, rows: selection.Selection, threshold: float | None, told: Told
) -> list[Double]:
    """Rows to leave out."""
    if threshold is None:
        return []
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        told("compare", done, rows.count)

    format = wanted.format
    return parts.doubles(releases.units(conn, format.view, format.key, rows.traces()), threshold, count)


def sign(folder: Path, name: str, facts: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Put what a release says of itself into its folder. Returns its files, and the manifest's hash."""
    with (folder / CARD).open("a") as card:
        card.write(parts.section(name, facts))
    files = parts.files(folder, but=(MANIFEST,))
    (folder / MANIFEST).write_bytes(parts.manifest(name, facts, files))
    return files, parts.sha256_of(folder / MANIFEST)


def again(conn: sa.Connection, name: str, folder: Path, told: Told = nothing) -> None:
    """Write a release once more. Raises WeavegenError where it comes out otherwise, and then nothing is left."""
    row = releases.load(conn, name)

    def compare(part: Path, written: Written) -> None:
        files, sha256 = sign(part, name, row.facts)
        if sha256 == row.manifest_sha256:
            return
        lines = parts.differences(row.files, files)
        here = {"weavegen": __version__, **parts.libraries()}
        there = {"weavegen": row.version, **row.facts["libraries"]}
        versions = [f"{what} {there[what]}, here {here[what]}" for what in here if here[what] != there.get(what)]
        if parts.code_sha256() != row.code_sha256:
            versions.append(f"weavegen's code {row.code_sha256[:12]}, here {parts.code_sha256()[:12]}")
        why = (
            f"it was made with {'; '.join(versions)}"
            if versions
            else CHANGED.get(row.format, "rows of it were changed or deleted")
        )
        raise WeavegenError(f"release {name} comes out otherwise ({', '.join(lines)}): {why}; nothing was written")

    wanted = write.Export(
        format=exports.find(row.format),
        out=folder,
        where=row.condition,
        splits=dict(row.splits),
        limit=row.row_limit,
        options=msgspec.convert(row.options, exports.Options),
        shard_bytes=row.shard_bytes,
        simulation=row.facts["simulation"],
        extra=compare,
    )
    keys: Iterator[Key] = releases.keys(conn, row)
    with contextlib.closing(selection.Selection(keys, row.key_width)) as kept:
        conn.rollback()
        write.export(conn, wanted, keys=kept, progress=lambda done, count: told("write", done, count))


def differing(conn: sa.Connection, name: str, folder: Path) -> list[str]:
    """What in a folder is other than in the release, a line each."""
    row = releases.load(conn, name)
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder: give that of the release")
    wanted = dict(row.files) | {MANIFEST: row.manifest_sha256}
    found: dict[str, Any] = dict(parts.files(folder, but=(MANIFEST,)))
    if (folder / MANIFEST).is_file():
        found[MANIFEST] = parts.sha256_of(folder / MANIFEST)
    return parts.differences(wanted, found)


def tokenizer(config: Config, blocks: list[tuple[str, list[int]]]) -> dict[str, Any] | None:
    """What can be told of the model server's tokeniser; None where no server tokenises.

    `blocks`: texts with the ids in which the model read them: whether this server would read the same.
    """
    from weavegen.pool.client import ModelClient
    from weavegen.services.fleet import model_urls

    client = None
    try:
        client = ModelClient(model_urls(config)[0], config.api_key, None, timeout=10.0)
        ids = client.encode(PROBE).ids
        same = [client.encode(text).ids == read for text, read in blocks]
        about = {"model": client.model, "model_length": client.length}
    except (ModelError, TransientError, UsageError, IndexError):
        return None
    finally:
        if client is not None:
            client.close()
    return about | {"sha256": parts.digest(ids), "wrote_the_traces": all(same) if same else None}


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
