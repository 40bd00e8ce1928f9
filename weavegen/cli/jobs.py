"""Commands that make work: enqueue, run, cancel."""

import dataclasses
from typing import Annotated, Any

import msgspec
import typer

from weavegen import config as configuration
from weavegen import display
from weavegen.cli.app import Json, N, Seed, app, out, print_json, reading
from weavegen.errors import UsageError

Files = Annotated[list[str] | None, typer.Argument(help="Bootstrap files, or patterns such as 'bootstraps/*.py'.")]
Ticks = Annotated[int | None, typer.Option(help="End a trace after this many ticks.")]
Until = Annotated[str | None, typer.Option(help="End a trace at this size, such as 500k or 2M.")]
From = Annotated[str | None, typer.Option("--from", help="A JSONL file: bootstrap, n, params, seed per row.")]
Param = Annotated[
    list[str] | None, typer.Option("--param", "-p", help="KEY=VALUE, read as args.params; repeatable.")
]
Set = Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE, a number of weavegen/settings.py.")]
Model = Annotated[str | None, typer.Option(help="The model's name; not needed where the server has only one.")]
Name = Annotated[str | None, typer.Option(help="What to call the job.")]


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
    job_id = submit(files, n, ticks, until, seed, from_, param, set_, model, name, workers=True)
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
    *,
    workers: bool = False,
) -> int:
    """Check everything, with `workers` that some answer, too; then write the job. Returns its id."""
    from weavegen import enqueueing

    if bool(files) == bool(from_):
        raise UsageError("give bootstrap files, or --from with a jobs file: one of them")
    orders = enqueueing.rows(from_) if from_ else enqueueing.orders(files or [], n, pairs(param))
    settings = pairs(set_)
    if ticks is not None:
        settings["ticks"] = ticks
    if until is not None:
        settings["until_bytes"] = size(until)
    enqueueing.check_services(configuration.load(), model, workers=workers)
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
