"""Commands that look: status, pool, show, sql."""

import csv
import dataclasses
import sys
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from weavegen import config as configuration
from weavegen import display
from weavegen.cli.app import Json, app, out, print_json, reading
from weavegen.errors import UsageError
from weavegen.render import parse_trace


@app.command()
def status(job: Annotated[int | None, typer.Argument(help="A job's number.")] = None, json: Json = False) -> None:
    """List the jobs, or one job's traces.

    Example: weavegen status 3
    """
    from weavegen.store import reports

    with reading() as conn:
        jobs = reports.jobs(conn, job)
        rows = reports.traces(conn, job) if job is not None else None
    if json:
        print_json([dataclasses.asdict(row) for row in (rows if rows is not None else jobs)])
    elif rows is not None:
        out.print(display.traces_table(rows))
        out.print(display.summary(jobs[0]))
    else:
        out.print(display.jobs_table(jobs))


@app.command()
def pool(
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to look, for the rates.")] = 1.0,
    json: Json = False,
) -> None:
    """Show the model servers: what runs and waits there, how full the cache is, what it saves, tokens a second.

    Example: weavegen pool --seconds 5
    """
    from weavegen.pool.survey import survey
    from weavegen.services.fleet import model_urls
    from weavegen.store import reports

    config = configuration.load()
    rows = survey(model_urls(config), config.api_key, seconds)
    with reading() as conn:
        traces = reports.traces_by_server(conn)
    if json:
        print_json([dataclasses.asdict(row) | {"traces": traces.get(row.url, 0)} for row in rows])
    else:
        out.print(display.pool_table(rows, traces))
    raise typer.Exit(0 if any(row.state != "away" for row in rows) else 1)


@app.command()
def show(trace: Annotated[int, typer.Argument(help="A trace's number.")], json: Json = False) -> None:
    """Print a trace: one Python file.

    Example: weavegen show 1 > trace.py
    """
    from weavegen.store import reports

    with reading() as conn:
        texts = reports.blocks(conn, trace)
        if json:
            print_json([block for text in texts for block in parse_trace(text)])
            return
        for text in texts:
            sys.stdout.write(display.harmless(text) if sys.stdout.isatty() else text)


@app.command()
def sql(
    query: Annotated[str | None, typer.Argument(help="One SELECT; from standard input if left out.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    json: Json = False,
    timeout: Annotated[float, typer.Option(help="Seconds the query may take.")] = 60.0,
    limit: Annotated[int | None, typer.Option(help="Rows at most.")] = None,
) -> None:
    """Query the corpus under a role that can only read.

    Example: weavegen sql "select type, count(*), avg(score) from blocks group by type order by 2 desc"
    """
    from weavegen.store import reports

    if query is None and sys.stdin.isatty():
        raise UsageError('give a query: weavegen sql "select count(*) from blocks", or pipe one in')
    with reading() as conn:
        columns, rows = reports.select(conn, query if query is not None else sys.stdin.read(), timeout, limit)
    if json:
        print_json([dict(zip(columns, map(plain, row), strict=True)) for row in rows])
    elif as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(columns)
        writer.writerows(rows)
    else:
        table = Table(*map(escape, columns), box=None)
        for row in rows:
            table.add_row(*("" if value is None else Text(display.harmless(str(value))) for value in row))
        out.print(table)
        out.print(f"({len(rows)} rows)")


def plain(value: Any) -> Any:
    """A value of Postgres as one of JSON."""
    return value if isinstance(value, str | int | float | bool | list | dict | None) else str(value)
