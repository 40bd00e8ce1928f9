"""Commands about what runs: up, down, doctor, sim, demo."""

import dataclasses
from typing import Annotated

import sqlalchemy as sa
import typer

from weavegen import config as configuration
from weavegen import display
from weavegen.cli.app import Json, N, Seed, app, out, print_json, reading
from weavegen.cli.watch import show
from weavegen.errors import UsageError

Model = Annotated[
    str | None,
    typer.Option(
        help="What writes where OPENAI_BASE_URL is not set: nano, the small language model that comes with "
        "weavegen (docs/nano.md), a folder with another one, sim, the simulation, or none. "
        "Default: WEAVEGEN_MODEL, else nano."
    ),
]


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
    from weavegen.environment.sandbox import provider
    from weavegen.services import fleet, model_server
    from weavegen.sim.options import split

    config = with_model(model)
    provider(config.sandbox).require()
    if sim_options and config.model != model_server.SIM:
        raise UsageError("--sim-options are of the simulation: give --model sim, too")
    parts = fleet.up(
        config, model_threads=threads, model_port=model_port, sim_options=split(sim_options), pages=True
    )
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
    from weavegen.environment.sandbox.selfcheck import check

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


@app.command()
def sim(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 for a free one.")] = 8017,
    like: Annotated[str | None, typer.Option(help="Take the figures of a server by name.", metavar="NAME")] = None,
    slots: Annotated[int | None, typer.Option(help="Sequences that run at once.")] = None,
    inter_token: Annotated[float | None, typer.Option(help="Milliseconds of a step.")] = None,
    per_sequence: Annotated[float | None, typer.Option(help="Milliseconds more for each sequence.")] = None,
    per_context: Annotated[
        float | None, typer.Option(help="Milliseconds more for 1,000 tokens of context.")
    ] = None,
    prefill: Annotated[float | None, typer.Option(help="Prompt tokens a second; 0: no time.")] = None,
    step_tokens: Annotated[int | None, typer.Option(help="Tokens of one step at most.")] = None,
    cache_tokens: Annotated[int | None, typer.Option(help="Size of the KV cache.")] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Tokens of a sequence at most.")] = None,
    scheduling_policy: Annotated[str | None, typer.Option(help="priority (default) or fcfs.")] = None,
    prefix_cache: Annotated[bool, typer.Option(help="Whether prompts that begin alike share work.")] = True,
    plain: Annotated[bool, typer.Option(help="Play a server without vLLM's extras.")] = False,
) -> None:
    """Serve the SIMULATED model in the foreground: vLLM's API, scripted texts, no GPU.

    It takes no time, unless it is given a pace; docs/simulation.md explains the figures. They are those of
    h100-8b, h200-8b, h100-70b-tp4 or h200-70b-tp4 with --like; other options go before them.

    Example: weavegen sim --port 8017 --like h100-8b --slots 128
    """
    from weavegen.sim import parameters
    from weavegen.sim.server import serve

    load = parameters.load(
        like,
        slots=slots,
        inter_token=inter_token,
        per_sequence=per_sequence,
        per_context=per_context,
        prefill=prefill,
        step_tokens=step_tokens,
        cache_tokens=cache_tokens,
        max_model_len=max_model_len,
        scheduling_policy=scheduling_policy,
        prefix_cache=prefix_cache,
    )
    serve(port, load=load, plain=plain)


@app.command()
def demo(
    n: N = 8,
    seed: Seed = 7,
    model: Model = None,
) -> None:
    """Bring everything up, have eight games of tic-tac-toe played, and take down again what was brought up.

    Example: weavegen demo
    """
    from weavegen import enqueueing
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
