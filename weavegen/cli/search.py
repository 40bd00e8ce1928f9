"""Commands about the index of the corpus: search, reindex."""

import dataclasses
import datetime
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from weavegen.cli.app import Json, app, out, print_json, reading
from weavegen.cli.complete import block_types
from weavegen.errors import UsageError
from weavegen.monitoring import display

SHOWN_LINES = 3
"""Of a hit's text."""


@app.command()
def search(
    query: Annotated[
        str, typer.Argument(help="Words; +word: one of these must be there; -word: none may; type:NAME.")
    ],
    trace: Annotated[int | None, typer.Option(help="Only in this trace.")] = None,
    job: Annotated[int | None, typer.Option(help="Only in traces of this job.")] = None,
    examples: Annotated[bool, typer.Option("--examples", help="Only in the examples.")] = False,
    type: Annotated[str | None, typer.Option(help="Only blocks of this type.", autocompletion=block_types)] = None,
    n: Annotated[int, typer.Option("-n", min=1, max=10_000, help="Hits at most.")] = 10,
    min_score: Annotated[float, typer.Option(help="No hits with a lower BM25 score.")] = 0.0,
    before: Annotated[
        str | None,
        typer.Option(help="Only blocks recorded before this moment: 2026-03-01, 2026-03-01T12:30; UTC."),
    ] = None,
    json: Json = False,
) -> None:
    """Search the corpus by BM25: orientations, actions, evaluations, debug and error blocks, and the examples.

    A word counts more if fewer texts have it, and twice with +. Scores of different scopes can't be compared.
    A query with a - at its beginning comes after `--`.

    Example: weavegen search "+lantern bridge -dragon" --type action -n 5
    """
    from weavegen.search.scope import Scope
    from weavegen.search.user_search import search_texts

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
        found = search_texts(conn, query, scope, type=type, least_score=min_score, top_k=n)
    if json:
        print_json([dataclasses.asdict(one) for one in found])
        return
    table = Table(box=None)
    for name in ("score", "where", "type", "text"):
        table.add_column(name, justify="right" if name == "score" else "left", no_wrap=name != "text")
    for one in found:
        where = f"example {one.example}" if one.trace is None else f"{one.trace}:{one.index}"
        lines = one.body.strip().splitlines()
        text = "\n".join([*lines[:SHOWN_LINES], *(["..."] if len(lines) > SHOWN_LINES else [])])
        table.add_row(f"{one.score:.2f}", where, one.type, Text(display.harmless(text), overflow="ellipsis"))
    out.print(table)
    out.print("(nothing found)" if not found else f"({len(found)} found; where is trace:index)")


def moment(text: str) -> datetime.datetime:
    """A date or a time. Raises UsageError."""
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--before: {text!r:.50} is no time: give one like 2026-03-01 or 2026-03-01T12:30"
        ) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=datetime.UTC)


@app.command()
def reindex(json: Json = False) -> None:
    """Make the index of the corpus anew. Nothing needs to be stopped: queries use the old one until then.

    Needed where blocks were copied into the database past its triggers; else it only frees what was dropped.

    Example: weavegen reindex
    """
    from weavegen.search import indexing

    console = display.console(stderr=True)
    columns = (TextColumn("indexing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with reading() as conn, Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("indexing", total=None)
        blocks = indexing.rebuild(conn, lambda done, of: progress.update(bar, completed=done, total=of))
        conn.commit()
    if json:
        print_json({"blocks": blocks})
    else:
        out.print(f"{blocks} blocks indexed")
