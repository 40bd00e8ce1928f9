"""Commands about the index of the corpus: search, reindex."""

import datetime
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from weavegen.cli.app import Result, command, progress_bar, reading, writing
from weavegen.cli.complete import block_types
from weavegen.errors import UsageError
from weavegen.text import harmless

SHOWN_LINES = 3
"""Lines of a hit's text in the table."""


@command()
def search(
    query: Annotated[
        str,
        typer.Argument(
            help="Words. +word: a hit has at least one of these; -word: no hit has it; type:NAME: a block type."
        ),
    ],
    trace: Annotated[int | None, typer.Option(help="Search only this trace.")] = None,
    job: Annotated[int | None, typer.Option(help="Search only the traces of this job.")] = None,
    examples: Annotated[bool, typer.Option("--examples", help="Search only the examples.")] = False,
    type: Annotated[
        str | None, typer.Option(help="Search only blocks of this type.", autocompletion=block_types)
    ] = None,
    n: Annotated[int, typer.Option("-n", min=1, max=10_000, help="Maximal number of hits.")] = 10,
    min_score: Annotated[float, typer.Option(help="Leave out hits with a lower BM25 score.")] = 0.0,
    before: Annotated[
        str | None,
        typer.Option(help="Search only blocks recorded before this UTC time: 2026-03-01 or 2026-03-01T12:30."),
    ] = None,
) -> Result:
    """Search the corpus by BM25: orientations, actions, evaluations, debug and error blocks, and the examples.

    Rare words have more weight, and words with + have twice their weight. Scores of different scopes can't be
    compared. Put a query that begins with - behind `--`.

    Example: weavegen search "+lantern bridge -dragon" --type action -n 5
    """
    from weavegen.search.lookup import lookup
    from weavegen.search.scope import Scope

    if sum((trace is not None, job is not None, examples)) > 1:
        raise UsageError("give one of --trace, --job and --examples, or none: then everything is searched")
    scope = Scope(
        trace_id=trace,
        job_id=job,
        blocks=not examples,
        examples=examples or (trace is None and job is None and before is None),
        until=None if before is None else moment(before),
    )
    with reading() as conn:
        hits = lookup(conn, query, scope, type=type, least_score=min_score, most=n)
    note = "(nothing found)" if not hits else f"({len(hits)} found; where is trace:index)"
    return Result(hits, [table(hits), note])


def table(hits: list[Any]) -> Table:
    """Hits with the first lines of their texts."""
    drawn = Table(box=None)
    for name in ("score", "where", "type", "text"):
        drawn.add_column(name, justify="right" if name == "score" else "left", no_wrap=name != "text")
    for hit in hits:
        where = f"example {hit.example}" if hit.trace is None else f"{hit.trace}:{hit.index}"
        lines = hit.body.strip().splitlines()
        text = "\n".join([*lines[:SHOWN_LINES], *(["..."] if len(lines) > SHOWN_LINES else [])])
        drawn.add_row(f"{hit.score:.2f}", where, hit.type, Text(harmless(text), overflow="ellipsis"))
    return drawn


def moment(text: str) -> datetime.datetime:
    """A date or a time, in UTC if it names no zone. Raises UsageError."""
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--before: {text!r:.50} is no time: give one like 2026-03-01 or 2026-03-01T12:30"
        ) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=datetime.UTC)


@command()
def reindex() -> Result:
    """Rebuild the index of the corpus. Nothing needs to be stopped: queries use the old index until then.

    It is needed after blocks were copied into the database without its triggers. Otherwise it only frees the space
    of deleted blocks.

    Example: weavegen reindex
    """
    from weavegen.search import indexing

    with writing() as conn, progress_bar("indexing") as progress:
        blocks = indexing.rebuild(conn, progress)
    return Result({"blocks": blocks}, f"{blocks} blocks indexed")
