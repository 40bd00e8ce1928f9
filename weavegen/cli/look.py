"""Commands that look: status, show, sql."""

import csv
import dataclasses
import io
import itertools
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec
import sqlalchemy as sa
import typer
from rich.table import Table
from rich.text import Text

from weavegen.cli.app import Json, app, out, print_json, reading
from weavegen.cli.complete import job_numbers, trace_numbers
from weavegen.errors import UsageError
from weavegen.monitoring import display
from weavegen.trace.render import parse_trace

TABLE_ROWS = 1_000
"""Rows of a query, or traces of a job, that a table shows where nothing else is asked for."""
CHUNK = 100
"""Blocks of a trace that are read at a time."""


@app.command()
def status(
    job: Annotated[int | None, typer.Argument(help="A job's number.", autocompletion=job_numbers)] = None,
    json: Json = False,
) -> None:
    """List the jobs, or one job's traces and what `retune` changed of its settings.

    Example: weavegen status 3
    """
    from weavegen.store import reports

    with reading() as conn:
        jobs = reports.jobs(conn, job)
        rows = reports.traces(conn, job, None if json else TABLE_ROWS) if job is not None else None
    if json:
        print_json([dataclasses.asdict(row) for row in (rows if rows is not None else jobs)])
    elif rows is not None:
        out.print(display.traces_table(rows))
        if len(rows) < jobs[0].traces:
            out.print(f"(the first {len(rows):,} traces of {jobs[0].traces:,}: --json for all of them)")
        for retune in jobs[0].retunes:
            out.print(display.retune_line(retune))
        out.print(display.summary(jobs[0]))
    else:
        out.print(display.jobs_table(jobs))


@app.command()
def show(
    trace: Annotated[int, typer.Argument(help="A trace's number.", autocompletion=trace_numbers)],
    plain: Annotated[bool, typer.Option("--plain", help="No colours and no pager, in a terminal too.")] = False,
    json: Json = False,
) -> None:
    """Print a trace: one Python file. A terminal gets it in colours, through $PAGER (less).

    Example: weavegen show 1 > trace.py
    """
    from weavegen.cli.paging import page
    from weavegen.store import reports

    with reading() as conn:
        texts = reports.blocks(conn, trace)
        if json:
            print_json([block for text in texts for block in parse_trace(text)])
        elif plain or not sys.stdout.isatty():
            for text in texts:
                display.write(text)
        else:
            texts.close()
            page(blocks(conn, trace))


def blocks(conn: sa.Connection, trace: int) -> Iterator[str]:
    """A trace's blocks as they are wanted. No transaction is open while somebody reads them in a pager."""
    from weavegen.store.blocks import texts

    first = 0
    while found := texts(conn, trace, first, first + CHUNK):
        conn.rollback()
        yield from found
        first += len(found)


@app.command()
def sql(
    query: Annotated[str | None, typer.Argument(help="One SELECT; from standard input if left out.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    json: Json = False,
    timeout: Annotated[float, typer.Option(help="Seconds the query may take.")] = 60.0,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help=f"Rows at most; {TABLE_ROWS} where neither --csv nor --json is given."),
    ] = None,
) -> None:
    """Query the corpus under a role that can only read.

    Example: weavegen sql "select type, count(*), avg(score) from blocks group by type order by 2 desc"
    """
    from weavegen.store import reports

    if query is None and sys.stdin.isatty():
        raise UsageError('give a query: weavegen sql "select count(*) from blocks", or pipe one in')
    with (
        reading() as conn,
        reports.answer(conn, query := query if query is not None else sys.stdin.read(), timeout) as (
            columns,
            rows,
        ),
    ):
        if json:
            print_rows(columns, itertools.islice(rows, limit))
        elif as_csv:
            print_csv(columns, itertools.islice(rows, limit))
        else:
            print_table(columns, rows, TABLE_ROWS if limit is None else limit)
            for name, age in reports.materialised(conn, query).items():
                out.print(f"({name} is as of {age:,.0f} seconds ago: `weavegen refresh`)", markup=False)


def print_rows(columns: list[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """A JSON list with an object for each row, one a line, as they come."""
    mark = "[\n"
    for row in rows:
        line = msgspec.json.encode(dict(zip(columns, map(plain, row), strict=True))).decode()
        sys.stdout.write(mark + display.harmless_json(line))
        mark = ",\n"
    sys.stdout.write("[]\n" if mark == "[\n" else "\n]\n")


def print_csv(columns: list[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """CSV with a line of names, as the rows come."""
    for row in itertools.chain([columns], rows):
        line = io.StringIO()
        csv.writer(line).writerow(row)
        display.write(line.getvalue().replace("\r\n", "\n") if sys.stdout.isatty() else line.getvalue())


def print_table(columns: list[str], rows: Iterator[tuple[Any, ...]], limit: int) -> None:
    """The first rows as a table, which must be known whole before it can be drawn."""
    table = Table(box=None)
    for name in columns:
        table.add_column(display.cell(name))
    for row in itertools.islice(rows, limit):
        table.add_row(*("" if value is None else Text(display.harmless(str(value))) for value in row))
    out.print(table)
    more = next(rows, None) is not None
    out.print(f"(the first {limit} rows: --limit for more of them)" if more else f"({table.row_count} rows)")


def plain(value: Any) -> Any:
    """A value of Postgres as one of JSON."""
    return value if isinstance(value, str | int | float | bool | list | dict | None) else str(value)
