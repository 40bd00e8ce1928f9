"""Commands about what runs: up, down, doctor, sim, demo."""

import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import sqlalchemy as sa
import typer

import weavegen
from weavegen import config as configuration
from weavegen.cli.app import Json, N, Seed, app, out, print_json, reading
from weavegen.cli.watch import show
from weavegen.errors import UsageError
from weavegen.monitoring import display

Model = Annotated[
    str | None,
    typer.Option(
        help="What writes where OPENAI_BASE_URL is not set: nano, the small language model that comes with "
        "weavegen (docs/nano.md), a folder with another one, sim, the simulation, or none. "
        "Default: WEAVEGEN_MODEL, else nano."
    ),
]


def from_source_tree(name: str) -> Any:
    """A module that does not ship with the package: the simulation, the attacks. Raises UsageError without it."""
    root = str(Path(weavegen.__file__).resolve().parent.parent)
    if root not in sys.path:
        sys.path.append(root)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        raise UsageError(f"{name.partition('.')[0]}/ is in the source tree alone: clone the repository") from None


def with_model(name: str | None) -> configuration.Config:
    """The configuration, with a model that was named on the command line."""
    config = configuration.load()
    return config if name is None else dataclasses.replace(config, model=name)


@app.command()
def up(
    model: Model = None,
    model_port: Annotated[int | None, typer.Option(help="The port of that model; a free one by default.")] = None,
    sim_options: Annotated[
        str,
        typer.Option(help='Of --model sim, as `weavegen sim` takes them: "--like h100-8b --slots 128".'),
    ] = "",
    threads: Annotated[
        int, typer.Option(help="Requests to the model at a time; give at least the number of active traces.")
    ] = 256,
    json: Json = False,
) -> None:
    """Start the database, the broker, the workers and, without OPENAI_BASE_URL, a small model.

    What runs already is left as it is. Flower and the viewer, which are pages for a browser, come last: on ports
    5555 and 8991, or the ones in WEAVEGEN_FLOWER and WEAVEGEN_VIEWER; 0 leaves one out.

    Example: weavegen up
    """
    from weavegen.sandbox.providers import provider
    from weavegen.services import fleet, model_server

    config = with_model(model)
    provider(config.sandbox).require()
    if sim_options and config.model != model_server.SIM:
        raise UsageError("--sim-options are of the simulation: give --model sim, too")
    simulated = from_source_tree("simulation.options").split(sim_options) if sim_options else ()
    parts = fleet.up(config, model_threads=threads, model_port=model_port, sim_options=simulated, pages=True)
    if json:
        print_json(parts)
        return
    for part in parts:
        out.print(f"{part.name:10} {'started' if part.started else 'found  '} {part.url or ''}", markup=False)


@app.command()
def down(
    wait: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=86_400,
            metavar="SECONDS",
            help="How long steps in flight may take to end, 20 by default (WEAVEGEN_DRAIN).",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """End what `up` started, workers first. Traces stay; those that are not over go on after the next `up`.

    Their live processes are rebuilt then, by doing again what they had done.

    Example: weavegen down
    """
    from weavegen.services import fleet

    ended = fleet.down(configuration.load(), wait)
    if json:
        print_json([service.name for service in ended])
    else:
        out.print("ended: " + (", ".join(service.name for service in ended) or "nothing was running"))


@app.command()
def migrate(json: Json = False) -> None:
    """Bring the database to this version's schema, and start nothing. For deployments; `up` does it as well.

    Example: DATABASE_URL=postgresql://weavegen@db/weavegen weavegen migrate
    """
    from weavegen.services import postgres, schema

    config = configuration.load()
    postgres.check(config)
    url = postgres.database_url(config)
    before = schema.current(url)
    schema.upgrade(url)
    after = schema.newest()
    if json:
        print_json({"before": before, "after": after})
    else:
        out.print(f"schema {after}" + ("" if before == after else f", before: {before or 'none'}"), markup=False)


@app.command()
def doctor(
    sandbox: Annotated[
        bool, typer.Option("--sandbox", help="Instead attack the sandbox from inside, and list what came of it.")
    ] = False,
    only: Annotated[
        str, typer.Option(help="Of the attacks, those whose name this regular expression finds.")
    ] = "",
    json: Json = False,
) -> None:
    """Check every part, and say what to do about what is missing. Exit code 1 if something is.

    With --sandbox: environments of their own are attacked by the code that they run, and this host is looked at
    after each attack. Exit code 1 if one is not contained. Takes a minute or two; the host is not harmed where the
    sandbox holds.

    Example: weavegen doctor --sandbox
    """
    from weavegen.services import doctor as parts

    if sandbox:
        raise typer.Exit(attacked(only, json))
    checks = parts.examine(configuration.load())
    if json:
        print_json(checks)
    else:
        for check in checks:
            mark = "[green]ok[/]  " if check.ok else "[red]miss[/]"
            out.print(f"{mark} {check.name:12}", end=" ")
            out.print(check.detail + ("" if check.ok else f": {check.advice}"), markup=False)
    raise typer.Exit(0 if all(check.ok for check in checks) else 1)


def attacked(only: str, json: bool) -> int:
    """Carry out the attacks whose names `only` finds, and print what came of them. Returns the exit code."""
    check = from_source_tree("tests.security.attacks.selfcheck").check

    findings = []
    for finding in check(configuration.load(), only):
        findings.append(finding)
        if not json:
            out.print("[green]contained[/]" if finding.contained else "[red]ESCAPED[/]  ", end=" ")
            out.print(f"{finding.attack}: {' '.join(finding.how.split())}", markup=False, soft_wrap=True)
    escaped = sum(not finding.contained for finding in findings)
    if json:
        print_json(findings)
    else:
        out.print(f"{len(findings)} attacks, " + (f"{escaped} not contained" if escaped else "all contained"))
    return 1 if escaped or not findings else 0


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
def sim(context: typer.Context) -> None:
    """Serve the SIMULATED model in the foreground: vLLM's API, scripted texts, no GPU.

    It comes with the source tree, not with the package. `weavegen sim --help` lists its options,
    docs/simulation.md explains them.

    Example: weavegen sim --port 8017 --like h100-8b --slots 128
    """
    raise typer.Exit(from_source_tree("simulation.__main__").main(context.args))


@app.command()
def demo(
    n: N = 8,
    seed: Seed = 7,
    model: Model = None,
) -> None:
    """Bring everything up, have eight games of tic-tac-toe played, and take down again what was brought up.

    Example: weavegen demo
    """
    from weavegen.engine import enqueueing
    from weavegen.services import fleet, model_server
    from weavegen.store.views.refresh import refresh

    config = with_model(model)
    ran = {service.name for service in fleet.running(config)}
    names = {
        model_server.NANO: "weavegen-nano, a small language model (no GPU, no download)",
        model_server.SIM: "the SIMULATED model",
    }
    what = names.get(config.model, config.model)
    out.print(f"starting PostgreSQL, Redis, the workers and {config.model_url or what} ...", markup=False)
    try:
        fleet.up(config)
        orders = enqueueing.orders([str(enqueueing.BOOTSTRAPS / "tictactoe.py")], n, {})
        # Three million parameters are surer of what they saw on the board than of a sample at temperature 1.
        job = enqueueing.submit(orders, name="demo", seed=seed, settings={"ticks": 12, "temperature": 0.6})
        code = show(job)
        with reading() as conn:
            list(refresh(conn))  # its views would be filled within a minute
            first = conn.execute(
                sa.text("select min(id) from traces where job_id = :job"), {"job": job}
            ).scalar_one()
    finally:
        if not ran:
            fleet.down(config)
    out.print("\nLook further:", style="bold")
    query = (
        "select type, count(*), round(avg(score)::numeric, 2) as score from blocks group by type order by 2 desc"
    )
    for command in (
        f"serve    # http://127.0.0.1:8991/traces/{first}, and there press c: why candidates lost",
        f"show {first}",
        f"status {job}",
        f'sql "{query}"',
    ):
        out.print(f"  {display.command()} {command}", markup=False, soft_wrap=True)
    raise typer.Exit(code)
