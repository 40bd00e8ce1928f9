"""Freezing an export, checking a folder against it, and writing it again byte for byte."""

import contextlib
import dataclasses
import datetime
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from weavegen import __version__, exports
from weavegen.config import Config
from weavegen.errors import ModelError, TransientError, UsageError, WeavegenError
from weavegen.exports import selection, write
from weavegen.exports.card import Written
from weavegen.exports.releases import manifest
from weavegen.exports.releases.manifest import CARD, MANIFEST, SHOWN
from weavegen.exports.releases.near_duplicates import Double, Key, doubles
from weavegen.pool.client import ModelClient
from weavegen.services import model_server
from weavegen.store import releases

SECONDS = 600.0
"""That a condition may take."""
CHANGED = {"retrieval": "the corpus that it searches has grown, or rows of it were changed or deleted"}
"""Formats whose rows depend on more than their traces: why they may come out otherwise."""
LEAST_ALIKE, MOST_ALIKE = 0.3, 0.95
"""Similarities from which on rows may be called near-duplicates; MinHash tells no finer differences."""
PROBE = "def f(x):\n    return [x ** 2, 'na\u00efve', 12345]  # \u6771\u4eac, na\u00efvet\u00e9\n"
"""A text whose token ids tell tokenisers apart."""
Told = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, of how much."""


def nothing(what: str, done: int, count: int) -> None:
    """Where nobody wants to be told."""


def freeze(
    conn: sa.Connection,
    name: str,
    wanted: write.Export,
    threshold: float | None,
    config: Config,
    told: Told = nothing,
) -> Written:
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
        return publish(conn, name, wanted, threshold, config, told, rows, removed, kept)


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
) -> Written:
    """Write the folder of these rows, and the release to the database."""
    format = wanted.format
    inside = [trace for trace, _ in kept.traces()]

    @cache
    def split(trace: int) -> str:
        return selection.split_of(conn, trace, wanted.splits)

    facts = {
        "created_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "code_sha256": manifest.code_sha256(),
        "libraries": manifest.libraries(),
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
    written = write.export(
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
    return written


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
    return doubles(releases.units(conn, format.view, format.key, rows.traces()), threshold, count)


def sign(folder: Path, name: str, facts: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Put what a release says of itself into its folder. Returns its files, and the manifest's hash."""
    with (folder / CARD).open("a") as card:
        card.write(manifest.section(name, facts))
    files = manifest.files(folder, but=(MANIFEST,))
    (folder / MANIFEST).write_bytes(manifest.manifest(name, facts, files))
    return files, manifest.sha256_of(folder / MANIFEST)


def again(conn: sa.Connection, name: str, folder: Path, told: Told = nothing) -> Written:
    """Write a release once more. Raises WeavegenError where it comes out otherwise, and then nothing is left."""
    row = releases.load(conn, name)

    def compare(part: Path, written: Written) -> None:
        files, sha256 = sign(part, name, row.facts)
        if sha256 == row.manifest_sha256:
            return
        lines = manifest.differences(row.files, files)
        here = {"weavegen": __version__, **manifest.libraries()}
        there = {"weavegen": row.version, **row.facts["libraries"]}
        versions = [f"{what} {there[what]}, here {here[what]}" for what in here if here[what] != there.get(what)]
        if manifest.code_sha256() != row.code_sha256:
            versions.append(f"weavegen's code {row.code_sha256[:12]}, here {manifest.code_sha256()[:12]}")
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
        return write.export(conn, wanted, keys=kept, progress=lambda done, count: told("write", done, count))


def differing(conn: sa.Connection, name: str, folder: Path) -> list[str]:
    """What in a folder is other than in the release, a line each."""
    row = releases.load(conn, name)
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder: give that of the release")
    wanted = dict(row.files) | {MANIFEST: row.manifest_sha256}
    found: dict[str, Any] = dict(manifest.files(folder, but=(MANIFEST,)))
    if (folder / MANIFEST).is_file():
        found[MANIFEST] = manifest.sha256_of(folder / MANIFEST)
    return manifest.differences(wanted, found)


def tokenizer(config: Config, blocks: list[tuple[str, list[int]]]) -> dict[str, Any] | None:
    """What can be told of the model server's tokeniser; None where no server tokenises.

    `blocks`: texts with the ids in which the model read them: whether this server would read the same.
    """
    client = None
    try:
        client = ModelClient(model_server.urls(config)[0], config.api_key, None, timeout=10.0)
        ids = client.encode(PROBE).ids
        same = [client.encode(text).ids == read for text, read in blocks]
        about = {"model": client.model, "model_length": client.length}
    except (ModelError, TransientError, UsageError, IndexError):
        return None
    finally:
        if client is not None:
            client.close()
    return about | {"sha256": manifest.digest(ids), "wrote_the_traces": all(same) if same else None}
