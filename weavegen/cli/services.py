"""Commands about an installation's services: up, down, migrate, doctor, sim, demo."""

import dataclasses
import importlib
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from weavegen import config as configuration
from weavegen import sql
from weavegen.cli import display
from weavegen.cli.app import N, Result, Seed, app, command, print_part, reading
from weavegen.cli.watch import show
from weavegen.errors import UsageError
from weavegen.pool import capabilities
from weavegen.sandbox.providers import provider
from weavegen.services import model_server, postgres, schema
from weavegen.store import urls
from weavegen.store.views import refresh

Model = Annotated[
    str | None,
    typer.Option(
        help="The model that runs if OPENAI_BASE_URL is not set: nano (the small language model that comes with "
        "weavegen, docs/nano.md), a folder with another one, sim (the simulation), or none. "
        "Default: WEAVEGEN_MODEL, else nano."
    ),
]


def from_source_tree(name: str) -> Any:
    """A module that is not part of the package, such as the simulation. Raises UsageError where it is missing."""
    root = str(Path(__file__).resolve().parents[2])
    if root not in sys.path:
        sys.path.append(root)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        raise UsageError(f"{name.partition('.')[0]}/ is only in the source tree: clone the repository") from None


def with_model(name: str | None) -> configuration.Config:
    """The configuration, with the model that the command line names."""
    config = configuration.load()
    return config if name is None else dataclasses.replace(config, model=name)


@command()
def up(
    model: Model = None,
    model_port: Annotated[int | None, typer.Option(help="That model's port. Default: any free port.")] = None,
    sim_options: Annotated[str, typer.Option(help='Options of `weavegen sim`, such as "--like h100-8b".')] = "",
    vllm: Annotated[
        str | None,
        typer.Option(
            "--vllm",
            metavar="MODEL",
            help="Serve this model with vLLM: a folder, or a name of the hub. As many servers as the GPUs hold, or one "
            "on the CPU (docs/servers.md).",
        ),
    ] = None,
    tensor_parallel: Annotated[int, typer.Option(help="With --vllm: GPUs that share the weights of a server.")] = 1,
    gpus: Annotated[str | None, typer.Option(help="With --vllm: GPUs to use, such as 0,1,2,3. Default: all.")] = None,
    vllm_options: Annotated[str, typer.Option(help='Further options of vLLM, such as "--max-model-len 16384".')] = "",
    threads: Annotated[int, typer.Option(help="Concurrent model requests; best: the number of running traces.")] = 256,
) -> Result:
    """Start the database, the broker, the workers, and without OPENAI_BASE_URL a small model.

    Services that already run are left alone, but if the settings have changed, the workers are restarted. The
    settings, which are environment variables, are stored in WEAVEGEN_HOME and apply to all later commands, unless a
    variable is set to another value; an empty value stands for the default. Services that die are restarted.

    Flower and the viewer, web pages for a browser, start last, on ports 5555 and 8991, or on those in
    WEAVEGEN_FLOWER and WEAVEGEN_VIEWER; 0 means not to start it.

    Example: weavegen up
    """
    from weavegen.services import fleet

    if vllm is None and (tensor_parallel != 1 or gpus is not None or vllm_options):
        raise UsageError("--tensor-parallel, --gpus and --vllm-options are for vLLM: give --vllm MODEL, too")
    if vllm is not None and model is not None:
        raise UsageError("--vllm and --model both name the model: give one of them")
    if vllm is not None:
        # A name on the hub stays as it is.
        model = f"{model_server.VLLM}{Path(vllm).absolute() if Path(vllm).is_dir() else vllm}"
    config = with_model(model)
    if vllm is not None and config.model_url is not None:
        raise UsageError("OPENAI_BASE_URL names the model servers: unset it, or set it to nothing, to start vLLM")
    try:
        further = None if vllm is None else shlex.split(vllm_options)
    except ValueError as error:
        raise UsageError(f"--vllm-options can't be read ({error}): give them as on vLLM's command line") from None
    provider(config.sandbox).require()
    if sim_options and config.model != model_server.SIM:
        raise UsageError("--sim-options is for the simulation: give --model sim, too")
    parts = fleet.up(
        config,
        model_threads=threads,
        model_port=model_port,
        sim_options=from_source_tree("simulation.options").split(sim_options) if sim_options else (),
        pages=True,
        vllm_options={
            "parallel": tensor_parallel,
            "gpus": None if gpus is None else [gpu for gpu in gpus.split(",") if gpu.strip()],
            "options": further,
            "tell": lambda line: display.console(stderr=True).print(line, markup=False),
        },
    )
    lines = [f"{part.name:10} {'started' if part.started else 'found  '} {part.url or ''}" for part in parts]
    return Result(parts, [*lines, *lacks(config)])


def lacks(config: configuration.Config) -> list[str]:
    """What the servers of OPENAI_BASE_URL lack, in lines."""
    if config.model_url is None:
        return []
    found = capabilities.probe_all(dict.fromkeys(model_server.urls(config), config.api_key))
    missing = {
        url: [has] if isinstance(has, str) else [f"without {line}" for line in capabilities.lacks(has)]
        for url, has in found.items()
    }
    return [f"{url}: {line}" for url, lines in missing.items() for line in lines]


@command()
def down(
    wait: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=86_400,
            metavar="SECONDS",
            help="How long running steps may take to finish. Default: WEAVEGEN_DRAIN, else 20.",
        ),
    ] = None,
) -> Result:
    """Stop the services that `up` started, workers first. Traces that are not over continue after the next `up`.

    Their environments are rebuilt then: the actions of recorded blocks run again.

    Example: weavegen down
    """
    from weavegen.services import fleet

    names = [service.name for service in fleet.down(configuration.load(), wait)]
    return Result(names, "ended: " + (", ".join(names) or "nothing was running"))


@command()
def migrate() -> Result:
    """Upgrade the database to this version's schema, and start nothing. This is for deployments; `up` also does it.

    Example: DATABASE_URL=postgresql://weavegen@db/weavegen weavegen migrate
    """
    config = configuration.load()
    postgres.check(config)
    before = schema.migrate(urls.database_url(config))
    after = schema.newest()
    line = f"schema {after}" + ("" if before == after else f", before: {before or 'none'}")
    return Result({"before": before, "after": after}, line)


@command()
def doctor(
    sandbox: Annotated[bool, typer.Option("--sandbox", help="Attack the sandbox from inside instead.")] = False,
    only: Annotated[str, typer.Option(help="Run only attacks whose name matches this regular expression.")] = "",
    json: bool = False,
) -> Result:
    """Check every part of the installation, and say how to fix problems. The exit code is 1 if there are any.

    With --sandbox it attacks boxes of its own with hostile code, and inspects this host after each attack. The
    exit code is 1 if an attack is not contained. That takes a minute or two. While the sandbox holds, the host
    is not harmed.

    Example: weavegen doctor --sandbox
    """
    from weavegen.services import doctor as parts

    if sandbox:
        return attack(only, json)
    if only:
        raise UsageError("--only is for attacks on the sandbox: give --sandbox, too")
    checks = parts.examine(configuration.load())
    lines = [
        Text.assemble(
            ("ok  ", "green") if check.ok else ("miss", "red"),
            f" {check.name:12} {check.detail}" + ("" if check.ok else f": {check.advice}"),
        )
        for check in checks
    ]
    return Result(checks, lines, code=0 if all(check.ok for check in checks) else 1)


def attack(only: str, json: bool) -> Result:
    """Run the attacks whose name matches `only`, and print each result as it comes."""
    check = from_source_tree("tests.security.attacks.selfcheck").check
    findings = []
    for finding in check(configuration.load(), only):
        findings.append(finding)
        if not json:
            mark = ("contained", "green") if finding.contained else ("ESCAPED  ", "red")
            print_part(Text.assemble(mark, f" {finding.attack}: {' '.join(finding.how.split())}"))
    escaped = sum(not finding.contained for finding in findings)
    line = f"{len(findings)} attacks, " + (f"{escaped} not contained" if escaped else "all contained")
    return Result(findings, line, code=1 if escaped or not findings else 0)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
def sim(context: typer.Context) -> None:
    """Serve the SIMULATED model in the foreground: vLLM's API, scripted texts, no GPU.

    It is part of the source tree, not of the package. `weavegen sim --help` lists its options, and
    docs/simulation.md explains them.

    Example: weavegen sim --port 8017 --like h100-8b --slots 128
    """
    raise typer.Exit(from_source_tree("simulation.__main__").main(context.args))


@app.command()
def demo(n: N = 8, seed: Seed = 7, model: Model = None) -> None:
    """Start everything, let the model play eight games of tic-tac-toe, and stop what it started.

    Example: weavegen demo
    """
    from weavegen.engine import enqueueing
    from weavegen.services import fleet

    config = with_model(model)
    ran_before = {service.name for service in fleet.running(config)}
    descriptions = {
        model_server.NANO: "weavegen-nano, a small language model (no GPU, no download)",
        model_server.SIM: "the SIMULATED model",
    }
    server = config.model_url or descriptions.get(config.model, config.model)
    print_part(f"starting PostgreSQL, Redis, the workers and {server} ...")
    try:
        fleet.up(config, store=False)
        orders = enqueueing.orders([str(enqueueing.BOOTSTRAPS / "tictactoe.py")], n, {})
        # The small model is a weak judge of what it writes. Actions are tried four at a time, so that there are losers
        # to learn from.
        settings = {"ticks": 12, "search": "execute", "types": {"action": {"rounds": [4, 16]}}}
        job = enqueueing.enqueue(traces=orders, name="demo", seed=seed, settings=settings)
        code = show(job)
        with reading() as conn:
            list(refresh(conn))  # the views for the queries below are refreshed only once a minute
            first = sql.run(conn, "cli/first_trace", job=job).scalar_one()
    finally:
        if not ran_before:
            fleet.down(config)
    print_part(Text("\nLook further:", "bold"))
    query = "select type, count(*), round(avg(score)::numeric, 2) as score from blocks group by type order by 2 desc"
    for line in (
        f"serve    # http://127.0.0.1:8991/traces/{first}, and there press c: why candidates lost",
        f"show {first}",
        f"status {job}",
        f'sql "{query}"',
    ):
        print_part(f"  {display.command()} {line}")
    raise typer.Exit(code)
