"""Commands that create and end jobs: enqueue, run, cancel; and check, which tries a bootstrap file."""

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
import typer

from weavegen import config as configuration
from weavegen.cli.app import N, Result, Seed, User, command, reading, writing
from weavegen.cli.complete import job_numbers, settings_names
from weavegen.cli.images import Base, Timeouts, add_bases
from weavegen.cli.watch import follow
from weavegen.errors import UsageError
from weavegen.kernel.settings import MOST, check_json
from weavegen.kernel.steps import Executed, Failure, Op
from weavegen.store import campaigns, reports, traces
from weavegen.text import parse_size

log = logging.getLogger(__name__)

Param = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", help="KEY=VALUE, which the bootstrap file reads as args.params; repeatable."),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="KEY=VALUE, as in docs/settings.md; TYPE.KEY=VALUE: for one block type; repeatable.",
        autocompletion=settings_names,
    ),
]
ROLES = ("agent", "evaluator", "researcher", "teacher")
"""Roles with their own model: writer, judge of yes/no questions, agent of `agent.research`, teacher of the writer."""
JobName = Annotated[str | None, typer.Option(help="A name for the job.")]
Network = Annotated[
    Literal["none", "host"] | None,
    typer.Option(help="What environments can reach: nothing, or everything that the host can."),
]
PackagesFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A requirements file: what Python in the boxes can import, instead of the default packages.",
    ),
]
PackagesFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Instead of --packages: a virtual environment, or a folder of packages, on each execute host.",
    ),
]
FilesFolder = Annotated[Path | None, typer.Option("--files", metavar="FOLDER", help="Initial files of /app.")]
McpFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A JSON file with mcpServers, whose tools the model may call; see docs/mcp.md."),
]
Agent = Literal["weave", "planning", "react", "research", "funsearch", "toolsmith", "nop", "oracle"]


@dataclasses.dataclass(frozen=True)
class JobOptions:
    """The options of a job. Each field is an option of the command line."""

    files: Annotated[list[str] | None, typer.Argument(help="Bootstraps or tasks, such as 'bootstraps/*.py'.")] = None
    n: N = 1
    ticks: Annotated[int | None, typer.Option(help="End a trace after this many ticks.")] = None
    until: Annotated[str | None, typer.Option(help="End a trace at this size, such as 500k or 2M bytes.")] = None
    seed: Seed = None
    from_: Annotated[str | None, typer.Option("--from", help="JSONL with bootstrap or task, n, params, seed.")] = None
    param: Param = None
    set_: Set = None
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="The model's name, needed only where the pool serves several; or ROLE=NAME with the role agent, "
            "evaluator, researcher or teacher; repeatable."
        ),
    ] = None
    packages: PackagesFile = None
    environment: PackagesFolder = None
    files_folder: FilesFolder = None
    mcp: McpFile = None
    template: Annotated[
        str | None,
        typer.Option(
            help="Chat template: a model's folder, its chat_template.jinja, a JSON file of texts, or none. "
            "Default: the model's own, as its server reports it."
        ),
    ] = None
    name: JobName = None
    user: User = None
    agent: Annotated[Agent, typer.Option(help="The agent that writes the traces; see docs/agents.md.")] = "weave"
    task: Annotated[list[str] | None, typer.Option(help="A task as text, for agents that take one; repeatable.")] = None
    documents: Annotated[str | None, typer.Option(metavar="DIR", help="Texts that research agents may read.")] = None
    harbor: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER", help="A Harbor task, or a folder of them; repeatable. See docs/harbor.md."),
    ] = None
    skip_unsupported: Annotated[
        bool, typer.Option("--skip-unsupported", help="Leave out Harbor tasks that can't run here, and list them.")
    ] = False
    image: Base = None
    timeout_multiplier: Timeouts = 1.0
    network: Network = None
    search: Annotated[
        Literal["cascade", "tree", "execute", "tree-execute"] | None,
        typer.Option(help="Sample rounds of candidates, or grow a tree of unfinished ones; execute: try the best."),
    ] = None
    correction: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Correct scores with this correction, stored by `weavegen calibrate --fit`."),
    ] = None


@command()
def enqueue(job: JobOptions) -> Result:
    """Enqueue traces and return at once. The workers write them.

    Example: weavegen enqueue 'my_bootstraps/*.py' -n 100 --ticks 20 -p level=hard
    """
    number = submit(job)
    return Result({"job": number}, f"job {number} enqueued: see it with  weavegen status {number}")


@command()
def run(job: JobOptions, json: bool = False) -> None:
    """Enqueue traces and watch them until they are over. The exit code is 1 if any failed.

    Example: weavegen run bootstraps/tictactoe.py -n 8 --ticks 12 --seed 1
    """
    raise typer.Exit(follow(submit(job, workers=True), json))


def submit(job: JobOptions, *, workers: bool = False) -> int:
    """Check the options, with `workers` also that workers answer; then write the job. Returns its number."""
    from weavegen.engine import enqueueing

    if (bool(job.files or job.task), bool(job.from_), bool(job.harbor)).count(True) != 1:
        raise UsageError("give bootstrap files, --task, --harbor, or --from with a jobs file: exactly one of them")
    if (job.param and not job.files) or (job.from_ and job.n != 1):
        raise UsageError("--param is only for bootstrap files, and a jobs file has its own n: leave it out")
    if (job.image or job.timeout_multiplier != 1.0 or job.skip_unsupported) and not job.harbor:
        raise UsageError("--image, --timeout-multiplier and --skip-unsupported are for Harbor tasks: give --harbor")
    if job.from_:
        orders = enqueueing.rows(job.from_)
    elif job.harbor:
        orders = enqueueing.harbor_orders(job.harbor, job.agent, job.n, job.timeout_multiplier, job.skip_unsupported)
        add_bases(configuration.load(), job.image)
    else:
        orders = enqueueing.orders(job.files or [], job.n, pairs(job.param), agent=job.agent)
        orders += enqueueing.task_orders(job.task or [], job.n)
    given = {"ticks": job.ticks, "network": job.network, "search": job.search}
    settings = by_type(pairs(job.set_)) | {name: value for name, value in given.items() if value is not None}
    if job.until is not None:
        settings["until_bytes"] = parse_size(job.until, "--until", MOST["until_bytes"])
    models = by_role(job.model)
    evaluator, researcher = models.get("evaluator"), models.get("researcher")
    student = models.get("agent") if "teacher" in models else None
    writer = models.get("teacher", models.get("agent"))
    if researcher is not None:
        settings.setdefault("delegates", {}).setdefault("research", {}).setdefault("model", researcher)
    writers = enqueueing.check_services(
        configuration.load(), writer, job.agent, evaluator=evaluator, researcher=researcher, workers=workers
    )
    known = {task for one in writers for task in one.tasks}
    if known and (others := {order.name.removesuffix(".py") for order in orders} - known):
        log.warning(
            "the model was trained on nothing but %s, and writes nonsense in other tasks, such as %s: use a server of "
            "your own, or `weavegen up --model sim`", ", ".join(sorted(known)), min(others),
        )  # fmt: skip
    if job.correction is not None:
        # The values are copied into the settings: a later fit must not change running jobs or replays.
        with reading() as conn:
            settings["corrections"] = campaigns.correction(conn, job.correction)
    return enqueueing.enqueue(
        traces=orders,
        name=job.name,
        seed=job.seed,
        model=writer,
        student=student,
        evaluator=evaluator,
        agent=job.agent,
        settings=settings,
        documents=job.documents,
        user=job.user,
        template=job.template,
        packages=job.packages,
        environment=job.environment,
        files_folder=job.files_folder,
        mcp=job.mcp,
    )


def by_role(options: list[str] | None) -> dict[str, str]:
    """The models by role. A name without a role is the agent's. Raises UsageError."""
    models: dict[str, str] = {}
    for option in options or []:
        role, name = option.split("=", 1) if "=" in option else ("agent", option)
        if role not in ROLES or not name:
            raise UsageError(f"--model {option!r:.80}: give NAME, or ROLE=NAME with a role of {', '.join(ROLES)}")
        if role in models:
            raise UsageError(f"--model names two models for the {role}: give one")
        models[role] = name
    return models


def pairs(options: list[str] | None) -> dict[str, Any]:
    """KEY=VALUE options as a dictionary. A value that is JSON is decoded."""
    values: dict[str, Any] = {}
    for option in options or []:
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise UsageError(f"{option!r}: give KEY=VALUE")
        try:
            values[key] = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError):
            values[key] = value
        except RecursionError:
            raise UsageError(f"{key}: nested too deep: give something flatter") from None
    check_json(values, "KEY=VALUE")
    return values


def by_type(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with TYPE.KEY moved to types[TYPE][KEY], and AGENT.KEY to delegates[AGENT][KEY]."""
    grouped: dict[str, Any] = {}
    for key, value in settings.items():
        owner, dot, name = key.partition(".")
        kind = "delegates" if owner in get_args(Agent) else "types"
        if not dot:
            grouped[key] = value
        elif kind in settings:
            raise UsageError(f"--set: give either {kind}, or {key}")
        else:
            grouped.setdefault(kind, {}).setdefault(owner, {})[name] = value
    return grouped


@command()
def cancel(job: Annotated[int, typer.Argument(help="The job's number.", autocompletion=job_numbers)]) -> Result:
    """Cancel a job's queued and running traces. The blocks that they wrote stay.

    Example: weavegen cancel 3
    """
    with writing() as conn:
        reports.jobs(conn, job)
        cancelled = traces.cancel(conn, job)
    return Result({"job": job, "cancelled": cancelled}, f"job {job}: {cancelled} traces cancelled")


@command()
def check(
    file: Annotated[Path, typer.Argument(help="A bootstrap file.")],
    param: Param = None,
    network: Network = None,
    packages: PackagesFile = None,
    environment: PackagesFolder = None,
    files_folder: FilesFolder = None,
) -> Result:
    """Run only the first tick of a bootstrap file, in the sandbox. The exit code is 1 if any part of it failed.

    No model is asked: each yes/no question of a callback gets the probability 0.5.

    Example: weavegen check bootstraps/tictactoe.py -p opponent=minimax
    """
    from weavegen.engine import enqueueing
    from weavegen.sandbox.environment import dry_run
    from weavegen.sandbox.packages import on_this_host

    order, *others = enqueueing.orders([file], 1, pairs(param))
    if others:
        raise UsageError(f"{file} names {len(others) + 1} files: give one of them")
    enqueueing.compile_bootstrap(order)
    ops: tuple[Op, ...] = ("bootstrap", "evaluate", "begin")
    config = configuration.load()
    folder = on_this_host(config, enqueueing.choose_packages(config, packages, environment))
    files = enqueueing.files_here(config, enqueueing.pack_files([order], files_folder))
    ran = dry_run(config, order.source, order.params, ops=ops, network=network or "none", packages=folder, files=files)
    done: dict[str, Executed] = dict(zip(ops, ran, strict=False))
    failures = [failure for executed in done.values() for failure in failures_of(executed)]
    return Result(done, (text + "\n" for text in report(done, failures)), code=1 if failures else 0)


def failures_of(executed: Executed) -> list[Failure]:
    errors = [executed.error, *(view.error for view in executed.views), *(one.error for one in executed.evaluations)]
    return [error for error in errors if error is not None]


def report(done: dict[str, Executed], failures: list[Failure]) -> Iterator[str]:
    """What the first tick did, worded as in a trace."""
    from weavegen.agents.tables import outcome_table, problem_map

    if "begin" in done:
        yield outcome_table(done["bootstrap"], done["evaluate"].evaluations)
        yield problem_map(done["begin"].subagents)
        yield from (f"View: {view.title}\n{view.text}" for view in done["begin"].views if view.error is None)
    yield from (failure.traceback for failure in failures)
    first = done["bootstrap"]
    if first.waits_for or first.writes or first.delegates:
        asked = f"a block of type {first.writes.type}" if first.writes else "a task for another agent"
        asked = f"a call of subagent {first.waits_for!r}" if first.waits_for else asked
        yield f"The first tick runs up to {asked}. Only a model can continue from there."
    else:
        yield "The first tick fails." if failures else "The first tick runs."
