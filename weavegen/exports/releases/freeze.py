"""Freezing an export as a release, verifying a folder against it, and writing it again byte for byte."""

import contextlib
import dataclasses
import datetime
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from weavegen import exports, sql
from weavegen.config import Config
from weavegen.database import Connection
from weavegen.errors import ModelError, TransientError, UsageError, WeavegenError
from weavegen.exports import write
from weavegen.exports.card import Written
from weavegen.exports.folder import check_free, clear, file_sha256
from weavegen.exports.format import Key, Options
from weavegen.exports.releases import manifest
from weavegen.exports.releases.facts import contamination, origins, units
from weavegen.exports.releases.manifest import MANIFEST, SHOWN
from weavegen.exports.releases.near_duplicates import Double, Unit, doubles
from weavegen.exports.tally import checks
from weavegen.pool.client import ModelClient
from weavegen.services import model_server
from weavegen.store import releases
from weavegen.version import __version__

CHANGED = {"retrieval": "the corpus that it searches has grown, or rows were changed or deleted"} | dict.fromkeys(
    ("dpo", "verifier"), "people changed annotations, or rows of it were changed or deleted"
)
"""Formats whose rows depend on more than their own traces, and why a rebuild of them may differ."""
MIN_THRESHOLD, MAX_THRESHOLD = 0.3, 0.95
"""Range of similarities for near-duplicates. MinHash cannot tell finer differences above it."""
PROBE = "def f(x):\n    return [x ** 2, 'na\u00efve', 12345]  # \u6771\u4eac, na\u00efvet\u00e9\n"
"""A text whose token ids identify a tokeniser."""
TOKENIZER_TIMEOUT_SECONDS = 10.0
Progress = Callable[[int, int, str], None]
"""Called with the number of rows that are done, the number of all, and the current activity."""


def freeze(
    conn: Connection,
    name: str,
    order: write.Export,
    threshold: float | None,
    config: Config,
    progress: Progress = lambda *_: None,
) -> Written:
    """Write a release: its folder, and its rows to the database. If it fails, neither is left.

    Only traces that have ended are taken. Of rows with a similarity of `threshold` or more one is kept; None keeps
    all. Raises UsageError.
    """
    format = order.format
    if order.options.student is not None:
        raise UsageError("a release can't depend on a model's folder: leave --student out, or use `weavegen export`")
    if threshold is not None and format.key != ("trace_id",) and not releases.text_columns(format.key):
        raise UsageError(f"rows of the format {format.name} can't be compared: give --near-duplicates 0")
    if threshold is not None and not MIN_THRESHOLD <= threshold <= MAX_THRESHOLD:
        raise UsageError(f"--near-duplicates {threshold}: give 0, or {MIN_THRESHOLD} to {MAX_THRESHOLD}")
    if sql.run(conn, "store/release", name=name).first() is not None:
        raise UsageError(
            f"there is a release {name!r} already, and it is never changed: give another name, or write it again "
            f"with `weavegen release {name} --rebuild DIR`"
        )
    check_free(order.out)
    with contextlib.ExitStack() as stack:

        def subset(keys: Iterable[Key]) -> write.Selection:
            return stack.enter_context(contextlib.closing(write.Selection(keys, len(format.key))))

        matching = stack.enter_context(contextlib.closing(write.selected(conn, order)))
        ended = {row.id for row in releases.about(conn, "store/release_ended", matching.ids())}
        closed = subset(key for key in matching if key[0] in ended)
        # The rows that are similar to a better one.
        removed = [] if threshold is None else doubles(compared(conn, order, closed, progress), threshold)
        removed_keys = {duplicate.key for duplicate in removed}
        kept = subset(key for key in closed if key not in removed_keys)
        if not kept.count:
            raise UsageError(f"{matching.count} rows of {format.view} match, none in a trace that is over")
        kept.left_out.update(matching.left_out)
        kept.checks = checks(conn, kept.ids()) if format.evaluator else []  # as of now: people may annotate more
        facts = collect_facts(conn, order, config, threshold, removed, kept)
        counts = {"found": matching.count, "open": matching.count - closed.count, "near_duplicates": len(removed)}
        facts["rows"] = counts | {"kept": kept.count}
        facts |= {"left_out": dict(kept.left_out), "evaluator_checks": kept.checks}
        return publish(conn, name, order, facts, removed, kept, progress)


def compared(conn: Connection, order: write.Export, rows: write.Selection, progress: Progress) -> Iterator[Unit]:
    """The rows as they are compared with each other."""
    for done, unit in enumerate(units(conn, order.format.view, order.format.key, rows.traces()), 1):
        yield unit
        progress(done, rows.count, "compare")


def collect_facts(
    conn: Connection,
    order: write.Export,
    config: Config,
    threshold: float | None,
    removed: list[Double],
    kept: write.Selection,
) -> dict[str, Any]:
    """What the manifest says about a release, except for its rows and files."""
    format = order.format
    traces = list(kept.ids())
    split = cache(lambda trace: write.split_of(conn, trace, order.splits))
    tokens = sql.run(conn, "store/release_tokens", traces=traces[: releases.TRACES_PER_QUERY], blocks=3)
    return {
        "created_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "code_sha256": manifest.code_sha256(),
        "libraries": manifest.libraries(),
        "format": format.name,
        "view": format.view,
        "key": list(format.key),
        "condition": order.where,
        "limit": order.limit,
        "options": vars(order.options),
        "splits": order.splits,
        "simulation": order.simulation,
        "near_duplicates": {"threshold": threshold, "examples": [vars(duplicate) for duplicate in removed[:SHOWN]]},
        "tokenizer": tokenizer(config, [(row.rendered, list(row.token_ids)) for row in tokens]),
        "contamination": contamination(conn, traces, removed, threshold, split),
        **origins(conn, traces),
    }


def publish(
    conn: Connection,
    name: str,
    order: write.Export,
    facts: dict[str, Any],
    removed: list[Double],
    kept: write.Selection,
    progress: Progress,
) -> Written:
    """Write the folder with the kept rows, and the release to the database."""

    def save(folder: Path, written: Written) -> None:
        files, sha256 = manifest.sign(folder, name, facts)
        releases.save(
            conn,
            kept,
            ((*row.key, *row.like) for row in removed),
            name=name,
            row_limit=order.limit,
            splits=[[split, share] for split, share in order.splits.items()],
            shard_bytes=order.shard_bytes,
            threshold=facts["near_duplicates"]["threshold"],
            key_width=len(order.format.key),
            rows=kept.count,
            facts=facts,
            manifest_sha256=sha256,
            files=files,
            **{column: facts[column] for column in ("format", "condition", "options", "version", "code_sha256")},
        )

    written = write_rows(conn, dataclasses.replace(order, extra=save), kept, progress)
    try:
        conn.commit()
    except psycopg.Error:
        clear(order.out)
        order.out.rmdir()
        raise
    return written


def write_rows(conn: Connection, order: write.Export, rows: write.Selection, progress: Progress) -> Written:
    """Write the folder with these rows."""
    conn.rollback()
    return write.export(conn, order, keys=rows, progress=lambda done, count: progress(done, count, "write"))


def again(conn: Connection, name: str, folder: Path, progress: Progress = lambda *_: None) -> Written:
    """Write a release again. Raises WeavegenError where the files differ; then no folder is left."""
    row = releases.load(conn, name)

    def compare(part: Path, written: Written) -> None:
        files, sha256 = manifest.sign(part, name, row.facts)
        if sha256 != row.manifest_sha256:
            lines = ", ".join(manifest.differences(row.files, files))
            raise WeavegenError(
                f"release {name} differs from what it was ({lines}): {why_different(row)}; nothing was written"
            )

    format, options = exports.find(row.format), msgspec.convert(row.options, Options)
    values = {"limit": row.row_limit, "shard_bytes": row.shard_bytes, "simulation": row.facts["simulation"]}
    order = write.Export(format, folder, row.condition, dict(row.splits), options=options, extra=compare, **values)
    with contextlib.closing(write.Selection(releases.keys(conn, row), row.key_width)) as kept:
        kept.left_out.update(row.facts.get("left_out", {}))
        kept.checks = row.facts.get("evaluator_checks")
        return write_rows(conn, order, kept, progress)


def why_different(row: Any) -> str:
    """Why a rebuild may differ: other versions, or changed rows."""
    here = {"weavegen": __version__, **manifest.libraries()}
    there = {"weavegen": row.version, **row.facts["libraries"]}
    versions = [f"{name} {there[name]}, here {here[name]}" for name in here if here[name] != there.get(name)]
    if (code := manifest.code_sha256()) != row.code_sha256:
        versions.append(f"weavegen's code {row.code_sha256[:12]}, here {code[:12]}")
    if versions:
        return f"it was made with {'; '.join(versions)}"
    return CHANGED.get(row.format, "rows of it were changed or deleted")


def differing(conn: Connection, name: str, folder: Path) -> list[str]:
    """The differences between a folder and a release, one per line."""
    row = releases.load(conn, name)
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder: give the folder of the release")
    expected = dict(row.files) | {MANIFEST: row.manifest_sha256}
    actual: dict[str, Any] = dict(manifest.files(folder))
    if (folder / MANIFEST).is_file():
        actual[MANIFEST] = file_sha256(folder / MANIFEST)
    return manifest.differences(expected, actual)


def tokenizer(config: Config, blocks: list[tuple[str, list[int]]]) -> dict[str, Any] | None:
    """The model server's tokeniser; None where no server tokenises.

    `blocks`: texts with the ids that the model read, to tell whether this tokeniser wrote the traces.
    """
    try:
        client = ModelClient(model_server.urls(config)[0], config.api_key, None, timeout=TOKENIZER_TIMEOUT_SECONDS)
        with contextlib.closing(client):
            ids = client.encode(PROBE).ids
            same = [client.encode(text).ids == read for text, read in blocks]
            about = {"model": client.model, "model_length": client.length}
    except (ModelError, TransientError, UsageError, IndexError):
        return None
    return about | {"sha256": manifest.digest(ids), "wrote_the_traces": all(same) if same else None}
