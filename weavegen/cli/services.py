"""Commands about what runs: up, down, doctor, sim, demo."""

from typing import Annotated

import sqlalchemy as sa
import typer

from weavegen import config as configuration
from weavegen import display
from weavegen.cli.app import Json, N, Seed, app, out, print_json, reading
from weavegen.cli.jobs import watch


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
    """End what `up` started, workers first. Traces stay; those that are not over go on after the next `up`.

    Their live processes are rebuilt then, by doing again what they had done.

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
