"""The command line. Bad input is one line on standard error and exit code 2."""

import csv
import dataclasses
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import msgspec
import sqlalchemy as sa
import typer
from rich.table import Table

from weavegen import config as configuration
from weavegen import display
from weavegen.errors import UsageError, WeavegenError
from weavegen.render import parse_trace

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Writes long LLM-agent traces in bulk.\n\nFirst: `weavegen up`, then "
    "`weavegen run bootstraps/tictactoe.py -n 8 --ticks 12`.",
)
out = display.console()

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
N = Annotated[int, typer.Option("-n", "--count", help="Traces of each file.")]
Files = Annotated[list[str] | None, typer.Argument(help="Bootstrap files, or patterns such as 'bootstraps/*.py'.")]
Ticks = Annotated[int | None, typer.Option(help="End a trace after this many ticks.")]
Until = Annotated[str | None, typer.Option(help="End a trace at this size, such as 500k or 2M.")]
Seed = Annotated[int | None, typer.Option(help="Equal seeds give equal traces from an equal server.")]
From = Annotated[str | None, typer.Option("--from", help="A JSONL file: bootstrap, n, params, seed per row.")]
Param = Annotated[
    list[str] | None, typer.Option("--param", "-p", help="KEY=VALUE, read as args.params; repeatable.")
]
Set = Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE, a number of weavegen/settings.py.")]
Model = Annotated[str | None, typer.Option(help="The model's name; not needed where the server has only one.")]
Name = Annotated[str | None, typer.Option(help="What to call the job.")]


def main() -> NoReturn:
    """Run the command line; errors of use become one line."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        code = app(standalone_mode=False)
    except UsageError as error:
        fail(str(error))
    except WeavegenError as error:
        fail(str(error), 1)
    except typer.Abort:
        fail("stopped", 130)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        if hasattr(error, "format_message"):  # what typer and click say of a command line
            fail(str(error.format_message()))
        raise
    sys.exit(code if isinstance(code, int) else 0)


def fail(message: str, code: int = 2) -> NoReturn:
    display.console(stderr=True).print(f"weavegen: {message}", markup=False)
    sys.exit(code)


def print_json(value: Any) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


@contextmanager
def reading() -> Iterator[sa.Connection]:
    """A connection to the database, which is started for the time of the command if it does not run."""
    from weavegen.services import postgres, schema
    from weavegen.store.session import make_engine

    with postgres.running(configuration.load()) as url:
        schema.check(url)
        engine = make_engine(url)
        try:
            with engine.connect() as conn:
                yield conn
        finally:
            engine.dispose()


# ---------------------------------------------------------------------------------------------- services


@app.command()
def up(
    sim: Annotated[bool, typer.Option(help="Start the simulated model where OPENAI_BASE_URL is not set.")] = True,
    sim_port: Annotated[int | None, typer.Option(help="Its port; a free one by default.")] = None,
    threads: Annotated[int, typer.Option(help="Requests to the model at a time.")] = 16,
    json: Json = False,
) -> None:
    """Start the database, the broker, the workers and, without OPENAI_BASE_URL, the simulated model.

    What runs already is left as it is.

    Example: weavegen up
    """
    from weavegen.services import fleet

    parts = fleet.up(configuration.load(), model_threads=threads, sim=sim, sim_port=sim_port)
    if json:
        print_json(parts)
        return
    for part in parts:
        out.print(f"{part.name:10} {'started' if part.started else 'found  '} {part.url or ''}", markup=False)


@app.command()
def down(json: Json = False) -> None:
    """End what `up` started, workers first. Finished traces stay; queued ones go on after the next `up`.

    Running ones lose the live process that they work in: let them end first, or `cancel` them.

    Example: weavegen down
    """
    from weavegen.services import fleet

    ended = fleet.down(configuration.load())
    if json:
        print_json([service.name for service in ended])
    else:
        out.print("ended: " + (", ".join(service.name for service in ended) or "nothing was running"))


@app.command()
def doctor(json: Json = False) -> None:
    """Check every part, and say what to do about what is missing.

    Example: weavegen doctor
    """
    from weavegen.services import doctor as parts

    checks = parts.examine(configuration.load())
    if json:
        print_json(checks)
    else:
        for check in checks:
            mark = "[green]ok[/]  " if check.ok else "[red]miss[/]"
            out.print(f"{mark} {check.name:12}", end=" ")
            out.print(check.detail + ("" if check.ok else f": {check.advice}"), markup=False)
    raise typer.Exit(0 if all(check.ok for check in checks) else 1)


@app.command()
def sim(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 for a free one.")] = 8017,
) -> None:
    """Serve the SIMULATED model in the foreground: vLLM's API, scripted texts, no GPU.

    Example: weavegen sim --port 8017
    """
    from weavegen.sim.server import serve

    serve(port)


# ------------------------------------------------------------------------------------------------- jobs


@app.command()
def enqueue(
    files: Files = None,
    n: N = 1,
    ticks: Ticks = None,
    until: Until = None,
    seed: Seed = None,
    from_: From = None,
    param: Param = None,
    set_: Set = None,
    model: Model = None,
    name: Name = None,
    json: Json = False,
) -> None:
    """Enqueue traces and return at once; the workers take them from there.

    Example: weavegen enqueue 'bootstraps/*.py' -n 100 --ticks 20 -p opponent=minimax
    """
    job_id = submit(files, n, ticks, until, seed, from_, param, set_, model, name)
    if json:
        print_json({"job": job_id})
    else:
        out.print(f"job {job_id} enqueued: see it with  weavegen status {job_id}")


@app.command()
def run(
    files: Files = None,
    n: N = 1,
    ticks: Ticks = None,
    until: Until = None,
    seed: Seed = None,
    from_: From = None,
    param: Param = None,
    set_: Set = None,
    model: Model = None,
    name: Name = None,
    json: Json = False,
) -> None:
    """Enqueue traces and watch them to their end. Exit code 1 if any failed.

    Example: weavegen run bootstraps/tictactoe.py -n 8 --ticks 12 --seed 1
    """
    from weavegen import enqueueing
    from weavegen.services import fleet

    config = configuration.load()
    enqueueing.check_services(config, model)
    if not fleet.answering(config):
        raise UsageError("no worker answers: start them with `weavegen up`")
    job_id = submit(files, n, ticks, until, seed, from_, param, set_, model, name)
    raise typer.Exit(watch(job_id, json))


def watch(job_id: int, json: bool = False) -> int:
    """Show a job until all its traces are over. Returns the exit code."""
    with reading() as conn:
        rows = display.watch(conn, job_id, display.console(stderr=json))
    if json:
        print_json([dataclasses.asdict(row) for row in rows])
    return 1 if any(row.status == "failed" for row in rows) else 0


def submit(
    files: list[str] | None,
    n: int,
    ticks: int | None,
    until: str | None,
    seed: int | None,
    from_: str | None,
    param: list[str] | None,
    set_: list[str] | None,
    model: str | None,
    name: str | None,
) -> int:
    """Check everything, then write the job. Returns its id."""
    from weavegen import enqueueing

    if bool(files) == bool(from_):
        raise UsageError("give bootstrap files, or --from with a jobs file: one of them")
    orders = enqueueing.rows(from_) if from_ else enqueueing.orders(files or [], n, pairs(param))
    settings = pairs(set_)
    if ticks is not None:
        settings["ticks"] = ticks
    if until is not None:
        settings["until_bytes"] = size(until)
    enqueueing.check_services(configuration.load(), model)
    return enqueueing.submit(orders, name=name, seed=seed, model=model, settings=settings)


def pairs(options: list[str] | None) -> dict[str, Any]:
    """KEY=VALUE options as a dictionary; values that are JSON are read as such."""
    found: dict[str, Any] = {}
    for option in options or []:
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise UsageError(f"{option!r}: give KEY=VALUE")
        try:
            found[key] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[key] = value
    return found


def size(text: str) -> int:
    """Bytes, from a number with an optional k, M or G (powers of 1000)."""
    units = {"k": 10**3, "m": 10**6, "g": 10**9}
    number, unit = (text[:-1], units.get(text[-1:].lower())) if text[-1:].lower() in units else (text, 1)
    try:
        value = int(float(number) * (unit or 1))
    except ValueError:
        value = 0
    if value < 1:
        raise UsageError(f"--until {text}: give a size such as 500k, 2M or 1G")
    return value


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
        table = Table(*columns, box=None)
        for row in rows:
            table.add_row(*("" if value is None else display.harmless(str(value)) for value in row))
        out.print(table)
        out.print(f"({len(rows)} rows)")


def plain(value: Any) -> Any:
    """A value of Postgres as one of JSON."""
    return value if isinstance(value, str | int | float | bool | list | dict | None) else str(value)


@app.command()
def cancel(job: Annotated[int, typer.Argument(help="A job's number.")], json: Json = False) -> None:
    """Cancel a job's queued and running traces. What they wrote stays.

    Example: weavegen cancel 3
    """
    from weavegen.store import reports, traces

    with reading() as conn:
        reports.jobs(conn, job)
        cancelled = traces.cancel(conn, job)
        conn.commit()
    if json:
        print_json({"job": job, "cancelled": cancelled})
    else:
        out.print(f"job {job}: {cancelled} traces cancelled")


@app.command()
def demo(
    n: N = 8,
    seed: Seed = 7,
) -> None:
    """Bring everything up, have eight games of tic-tac-toe played, and take down again what was brought up.

    Example: weavegen demo
    """
    from weavegen import enqueueing
    from weavegen.services import fleet

    config = configuration.load()
    ran = {service.name for service in fleet.running(config)}
    out.print("starting PostgreSQL, Redis, the workers and the SIMULATED model (no GPU, no download) ...")
    try:
        fleet.up(config)
        orders = enqueueing.orders([str(enqueueing.BOOTSTRAPS / "tictactoe.py")], n, {})
        job = enqueueing.submit(orders, name="demo", seed=seed, settings={"ticks": 12})
        code = watch(job)
        with reading() as conn:
            first = conn.execute(
                sa.text("select min(id) from traces where job_id = :job"), {"job": job}
            ).scalar_one()
    finally:
        if not ran:
            fleet.down(config)
    out.print("\nLook further:", style="bold")
    out.print(f"  {display.command()} show {first}", markup=False)
    out.print(f"  {display.command()} status {job}", markup=False)
    query = (
        "select type, count(*), round(avg(score)::numeric, 2) as score from blocks group by type order by 2 desc"
    )
    out.print(f'  {display.command()} sql "{query}"', markup=False)
    raise typer.Exit(code)


if __name__ == "__main__":
    main()
