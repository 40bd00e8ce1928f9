"""Commands that read the corpus (status, show, sql, search) and that maintain it (reindex, refresh, examples)."""

import csv
import datetime
import itertools
import sys
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import msgspec
import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from weavegen import config as configuration
from weavegen.cli import display
from weavegen.cli.app import Result, app, command, print_part, progress_bar, reading, writing
from weavegen.cli.complete import block_types, job_numbers, trace_numbers
from weavegen.cli.paging import page
from weavegen.database import Connection
from weavegen.errors import UsageError
from weavegen.services.faults import faults
from weavegen.store import examples as store
from weavegen.store import reports, views
from weavegen.store.blocks import texts
from weavegen.text import harmless, harmless_json
from weavegen.trace.render import parse_trace

MAX_TABLE_ROWS = 1_000
"""Default limit on the rows of a query, or the traces of a job, in a table."""
BLOCKS_PER_READ = 100


@command()
def status(
    job: Annotated[int | None, typer.Argument(help="A job's number.", autocompletion=job_numbers)] = None,
    json: bool = False,
) -> Result:
    """List the newest 50 jobs; or one job's traces, and the changes that `retune` made to its settings.

    Faults of the installation go to standard error.

    Example: weavegen status 3
    """
    with reading() as conn:
        jobs = reports.jobs(conn, job)
        for fault in faults(conn, configuration.load()):
            display.console(stderr=True).print(display.fault_line(fault), soft_wrap=True)
        if job is None:
            return Result(jobs, display.jobs_table(jobs))
        rows = reports.traces(conn, job, None if json else MAX_TABLE_ROWS)

    def shown() -> Iterator[RenderableType]:
        yield display.traces_table(rows)
        if len(rows) < jobs[0].traces:
            yield f"(the first {len(rows):,} traces of {jobs[0].traces:,}: --json for all of them)"
        yield from map(display.retune_line, jobs[0].retunes)
        yield display.summary(jobs[0])

    return Result(rows, shown())


@command()
def show(
    trace: Annotated[int, typer.Argument(help="The trace's number.", autocompletion=trace_numbers)],
    plain: Annotated[bool, typer.Option("--plain", help="No colours and no pager, even in a terminal.")] = False,
    json: bool = False,
) -> Result | None:
    """Print a trace, which is one Python file. In a terminal it is coloured, and shown by $PAGER (less).

    Example: weavegen show 1 > trace.py
    """
    with reading() as conn:
        texts = reports.blocks(conn, trace)
        if json:
            return Result([block for text in texts for block in parse_trace(text)])
        if plain or not sys.stdout.isatty():
            for text in texts:
                display.write(text)
        else:
            texts.close()
            page(blocks(conn, trace))
    return None


def blocks(conn: Connection, trace: int) -> Iterator[str]:
    """A trace's blocks, read as they are needed. No transaction stays open while a pager waits for its user."""
    first = 0
    while chunk := texts(conn, trace, first, first + BLOCKS_PER_READ):
        conn.rollback()
        yield from chunk
        first += len(chunk)


@command()
def sql(
    query: Annotated[str | None, typer.Argument(help="One SELECT. Default: read from standard input.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, with arrays and objects as JSON.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that the query may take.")] = 60.0,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help=f"Maximum number of rows. Default: {MAX_TABLE_ROWS}; all with --csv or --json."),
    ] = None,
    json: bool = False,
) -> None:
    """Query the corpus under a database role that can only read.

    Example: weavegen sql "select type, count(*), avg(score) from blocks group by type order by 2 desc"
    """
    if query is None and sys.stdin.isatty():
        raise UsageError('give a query: weavegen sql "select count(*) from blocks", or pipe one in')
    query = query if query is not None else sys.stdin.read()
    with reading() as conn, reports.answer(conn, query, timeout) as (columns, rows):
        if json:
            print_rows(columns, itertools.islice(rows, limit))
        elif as_csv:
            print_csv(columns, itertools.islice(rows, limit))
        else:
            print_table(columns, rows, MAX_TABLE_ROWS if limit is None else limit)
            for name, age in reports.materialised(conn, query).items():
                print_part(f"({name} is as of {age:,.0f} seconds ago: `weavegen refresh`)")


def print_rows(columns: list[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """Print rows as they come: a JSON list with an object per line. Raises UsageError if names are equal."""
    if len(set(columns)) < len(columns):
        raise UsageError("two columns have one name, and JSON would lose one of them: rename one with AS")
    mark = "[\n"
    for row in rows:
        line = msgspec.json.encode(dict(zip(columns, map(json_value, row), strict=True))).decode()
        sys.stdout.write(mark + harmless_json(line))
        mark = ",\n"
    sys.stdout.write("[]\n" if mark == "[\n" else "\n]\n")


def json_value(value: Any) -> Any:
    """A value of a row as JSON has it: a numeric keeps all its digits, and is null if it is no finite number."""
    if isinstance(value, list):
        return list(map(json_value, value))
    if isinstance(value, Decimal):
        return msgspec.Raw(str(value).encode()) if value.is_finite() else None
    return value if value is None or isinstance(value, str | int | float | dict) else str(value)


def print_csv(columns: list[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """Print rows as they come, after a line of column names. Arrays and objects are JSON."""
    json = msgspec.json.Encoder(enc_hook=str)
    texts = ([json.encode(one).decode() if isinstance(one, list | dict) else one for one in row] for row in rows)
    terminal = sys.stdout.isatty()
    out = SimpleNamespace(write=lambda line: display.write(line.replace("\r\n", "\n") if terminal else line))
    csv.writer(out).writerows(itertools.chain([columns], texts))


def print_table(columns: list[str], rows: Iterator[tuple[Any, ...]], limit: int) -> None:
    """Print the first rows as a table, which needs all of them before its widths are known."""
    table = Table(box=None)
    for name in columns:
        table.add_column(display.cell(name))
    for row in itertools.islice(rows, limit):
        table.add_row(*("" if value is None else Text(harmless(str(value))) for value in row))
    print_part(table)
    more = next(rows, None) is not None
    print_part(f"(the first {limit} rows: --limit for more of them)" if more else f"({table.row_count} rows)")


SHOWN_LINES = 3
"""Lines of a hit's text in the table."""


@command()
def search(
    query: Annotated[str, typer.Argument(help="Words; +word: one of these; -word: not this; type:NAME: a block type.")],
    trace: Annotated[int | None, typer.Option(help="Search only this trace.")] = None,
    job: Annotated[int | None, typer.Option(help="Search only the traces of this job.")] = None,
    examples: Annotated[bool, typer.Option("--examples", help="Search only the examples.")] = False,
    type: Annotated[str | None, typer.Option(help="Only blocks of this type.", autocompletion=block_types)] = None,
    n: Annotated[int, typer.Option("-n", min=1, max=10_000, help="Maximum number of hits.")] = 10,
    min_score: Annotated[float, typer.Option(help="Leave out hits with a lower BM25 score.")] = 0.0,
    before: Annotated[
        str | None,
        typer.Option(help="Search only blocks recorded before this UTC time: 2026-03-01 or 2026-03-01T12:30."),
    ] = None,
) -> Result:
    """Search the corpus by BM25: orientations, actions, evaluations, debug and error blocks, and the examples.

    Rare words have more weight, and words with + have twice their weight. Scores of different scopes can't be
    compared. Put a query that begins with - after `--`.

    Example: weavegen search "+lantern bridge -dragon" --type action -n 5
    """
    from weavegen.search.corpus_index import Scope
    from weavegen.search.user_search import search_texts

    if sum((trace is not None, job is not None, examples)) > 1:
        raise UsageError("give one of --trace, --job and --examples, or none of them to search everything")
    everything = trace is None and job is None and before is None
    until = None if before is None else moment(before)
    scope = Scope(trace_id=trace, job_id=job, blocks=not examples, examples=examples or everything, until=until)
    with reading() as conn:
        hits = search_texts(conn, query, scope, type=type, least_score=min_score, top_k=n)
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
        raise UsageError(f"--before: {text!r:.50} is not a time: try 2026-03-01 or 2026-03-01T12:30") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=datetime.UTC)


@command()
def reindex() -> Result:
    """Rebuild the index of the corpus. Nothing needs to stop: queries use the old index until the new one is ready.

    This is needed after blocks were copied into the database without firing its triggers, and after some were deleted:
    until then their words stay in the index.

    Example: weavegen reindex
    """
    from weavegen.search import indexing

    with writing() as conn, progress_bar("indexing") as progress:
        blocks = indexing.rebuild(conn, progress)
    return Result({"blocks": blocks}, f"{blocks} blocks indexed")


@command()
def refresh(
    names: Annotated[list[str] | None, typer.Argument(metavar="[VIEW]...", help="Default: all materialised.")] = None,
    json: bool = False,
) -> Result:
    """Recompute the materialised views from the tables. Queries of these views are not blocked.

    While the services run, this happens about every minute anyway, and less often for slow views. To list the
    views and their ages: `weavegen sql "select * from freshness"`.

    Example: weavegen refresh
    """
    refreshed = []
    with reading() as conn:
        for view in views.refresh(conn, names or ()):
            refreshed.append(view)
            if not json:
                print_part(f"{view.view}: {view.rows:,} rows in {view.seconds:.1f} s")
    return Result(refreshed)


examples = typer.Typer(no_args_is_help=True, help="Manage the examples: hand-written blocks for retrieval.")
app.add_typer(examples, name="examples")


@command(group=examples)
def load(
    paths: Annotated[list[Path] | None, typer.Argument(help="TOML files or folders. Default: the project's.")] = None,
) -> Result:
    """Load examples. Those that are already loaded stay unchanged.

    Example: weavegen examples load bootstraps/examples
    """
    from weavegen.engine.enqueueing import BOOTSTRAPS
    from weavegen.search.examples import read

    loaded = [example for path in paths or [BOOTSTRAPS / "examples"] for example in read(path)]
    with writing() as conn:
        new = store.load(conn, loaded)
    return Result({"examples": len(loaded), "new": new}, f"{len(loaded)} examples, {new} of them new")
