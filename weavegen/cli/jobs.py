"""Commands that make work: enqueue, run, cancel."""

import dataclasses
import enum
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from weavegen import config as configuration
from weavegen.cli.app import Json, N, Seed, app, out, print_json, reading
from weavegen.cli.complete import job_numbers, settings_names
from weavegen.cli.watch import follow
from weavegen.errors import UsageError
from weavegen.kernel.settings import MOST, check_json

Param = Annotated[
    list[str] | None, typer.Option("--param", "-p", help="KEY=VALUE, read as args.params; repeatable.")
]

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="KEY=VALUE, a number of weavegen/kernel/settings.py; TYPE.KEY: for one block type.",
        autocompletion=settings_names,
    ),
]


class Reach(enum.StrEnum):
    """What the traces' environments can reach."""

    NONE = "none"
    HOST = "host"


class Search(enum.StrEnum):
    """How a block is found."""

    CASCADE = "cascade"
    TREE = "tree"


class Program(enum.StrEnum):
    """The programs that write traces; see weavegen/agents."""

    WEAVE = "weave"
    PLANNING = "planning"
    REACT = "react"
    RESEARCH = "research"
    FUNSEARCH = "funsearch"
    TOOLSMITH = "toolsmith"


Network = Annotated[Reach | None, typer.Option(help="What environments can reach: nothing, or what the host can.")]


@dataclasses.dataclass(frozen=True)
class JobOptions:
    """What a job is made of, as options of the command line."""

    files: Annotated[
        list[str] | None,
        typer.Argument(help="Bootstrap files or tasks, or patterns such as 'bootstraps/*.py'."),
    ] = None
    n: N = 1
    ticks: Annotated[int | None, typer.Option(help="End a trace after this many ticks.")] = None
    until: Annotated[str | None, typer.Option(help="End a trace at this size, such as 500k or 2M.")] = None
    seed: Seed = None
    from_: Annotated[
        str | None, typer.Option("--from", help="A JSONL file: bootstrap or task, n, params, seed per row.")
    ] = None
    param: Param = None
    set_: Set = None
    model: Annotated[
        str | None, typer.Option(help="The model's name; not needed where the server has only one.")
    ] = None
    name: Annotated[str | None, typer.Option(help="What to call the job.")] = None
    user: Annotated[
        str | None, typer.Option(help="Who enqueues it; WEAVEGEN_USER or the login name by default.")
    ] = None
    agent: Annotated[Program, typer.Option(help="Who writes; see docs/agents.md.")] = Program.WEAVE
    task: Annotated[
        list[str] | None, typer.Option(help="A task as text, for agents that take these; repeatable.")
    ] = None
    documents: Annotated[
        str | None, typer.Option(metavar="DIR", help="A folder of texts that the job's researchers may read.")
    ] = None
    network: Network = None
    search: Annotated[
        Search | None, typer.Option(help="Sample whole blocks in rounds, or grow a tree of pieces.")
    ] = None
    correction: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Select by scores corrected so: see weavegen calibrate --fit."),
    ] = None
    json: Json = False


def takes_job(command: Callable[[JobOptions], None]) -> Callable[..., None]:
    """Let typer see a command of one JobOptions as a command with these options."""

    @functools.wraps(command)
    def with_options(**options: Any) -> None:
        command(JobOptions(**options))

    fields = dataclasses.fields(JobOptions)
    with_options.__annotations__ = {field.name: field.type for field in fields}
    with_options.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
            )
            for field in fields
        ]
    )
    return with_options


@app.command()
@takes_job
def enqueue(job: JobOptions) -> None:
    """Enqueue traces and return at once; the workers take them from there.

    Example: weavegen enqueue 'my_bootstraps/*.py' -n 100 --ticks 20 -p level=hard
    """
    job_id = submit(job)
    if job.json:
        print_json({"job": job_id})
    else:
        out.print(f"job {job_id} enqueued: see it with  weavegen status {job_id}")


@app.command()
@takes_job
def run(job: JobOptions) -> None:
    """Enqueue traces and watch them to their end. Exit code 1 if any failed.

    Example: weavegen run bootstraps/tictactoe.py -n 8 --ticks 12 --seed 1
    """
    raise typer.Exit(follow(submit(job, workers=True), job.json))


def submit(job: JobOptions, *, workers: bool = False) -> int:
    """Check everything, with `workers` that some answer, too; then write the job. Returns its id."""
    from weavegen.engine import enqueueing
    from weavegen.store import campaigns

    if bool(job.files or job.task) == bool(job.from_):
        raise UsageError("give bootstrap files, --task, or --from with a jobs file: one of them")
    if job.from_:
        orders = enqueueing.rows(job.from_)
    else:
        orders = enqueueing.orders(job.files or [], job.n, pairs(job.param), agent=str(job.agent))
        orders += enqueueing.task_orders(job.task or [], job.n)
    settings = by_type(pairs(job.set_))
    if job.ticks is not None:
        settings["ticks"] = job.ticks
    if job.network is not None:
        settings["network"] = str(job.network)
    if job.search is not None:
        settings["search"] = str(job.search)
    if job.until is not None:
        settings["until_bytes"] = size(job.until)
    enqueueing.check_services(configuration.load(), job.model, workers=workers)
    if job.correction is not None:
        # Copied, so that replays are the same and a later fit changes nothing that runs.
        with reading() as conn:
            settings["corrections"] = campaigns.correction(conn, job.correction)
    return enqueueing.submit(
        orders,
        name=job.name,
        seed=job.seed,
        model=job.model,
        agent=str(job.agent),
        settings=settings,
        documents=job.documents,
        user=job.user,
    )


def pairs(options: list[str] | None) -> dict[str, Any]:
    """KEY=VALUE options as a dictionary; values that are JSON are read as such."""
    found: dict[str, Any] = {}
    for option in options or []:
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise UsageError(f"{option!r}: give KEY=VALUE")
        try:
            found[key] = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError):
            found[key] = value
        except RecursionError:
            raise UsageError(f"{key}: nested too deep: give something flatter") from None
    check_json(found, "KEY=VALUE")
    return found


def by_type(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings in which TYPE.KEY became KEY of TYPE, and AGENT.KEY one of the traces that AGENT is asked for."""
    found = {key: value for key, value in settings.items() if "." not in key}
    own: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        whose, dot, name = key.partition(".")
        if dot:
            kind = "delegates" if whose in set(Program) else "types"
            if kind in found:
                raise UsageError(f"--set: give either {kind}, or {key}")
            own.setdefault(kind, {}).setdefault(whose, {})[name] = value
    return found | own


def size(text: str) -> int:
    """Bytes, from a number with an optional k, M or G (powers of 1000)."""
    units = {"k": 10**3, "m": 10**6, "g": 10**9}
    number, unit = (text[:-1], units[text[-1].lower()]) if text[-1:].lower() in units else (text, 1)
    try:
        value = float(number) * unit if set(number.strip()) <= set("0123456789.") else 0.0
    except ValueError:
        value = 0.0
    if not 1 <= value <= MOST["until_bytes"]:
        raise UsageError(f"--until {text[:50]}: give a size such as 500k, 2M or 1G")
    return int(value)


@app.command()
def cancel(
    job: Annotated[int, typer.Argument(help="A job's number.", autocompletion=job_numbers)], json: Json = False
) -> None:
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
