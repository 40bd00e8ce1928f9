"""The command that trains a model on the corpus: tune."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from weavegen import config as configuration
from weavegen.cli.app import Json, app, out, print_json, reading
from weavegen.cli.pool import members
from weavegen.errors import UsageError, WeavegenError
from weavegen.training.plan import EXPORTS, RATES, TunePlan

CONDITIONS = {"verifier": "source <> 'drawn'"}
"""Of each export, besides --where: answers that the model drew itself teach it nothing."""


@app.command()
def tune(
    model: Annotated[str, typer.Argument(help="A folder in Hugging Face's format, or a name on the hub.")],
    to: Annotated[Path, typer.Option("--out", "-o", help="The folder to write. It must not exist.")],
    where: Annotated[
        list[str] | None,
        typer.Option(
            help='An SQL condition over the exports\' views, such as "job_id = 3"; FORMAT:CONDITION for one '
            "export alone; repeatable."
        ),
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="sft, dpo or kto; repeatable, done one after the other. Default: sft.")
    ] = None,
    lora: Annotated[int, typer.Option(min=0, help="Rank of an adapter; 0: all weights are trained.")] = 0,
    norms: Annotated[
        bool, typer.Option("--norms", help="Train the norms' scales alone: what a few hundred examples can tell.")
    ] = False,
    window: Annotated[int, typer.Option(min=64, help="Tokens of an example at most.")] = TunePlan.window,
    epochs: Annotated[float, typer.Option(min=0.01)] = TunePlan.epochs,
    batch: Annotated[int, typer.Option(min=1, help="Examples of a step.")] = TunePlan.batch,
    rate: Annotated[
        float | None, typer.Option(min=0, help="Learning rate; by default one for billions of parameters.")
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="Rows of an export at most, drawn at random.")] = TunePlan.most,
    seed: Annotated[int, typer.Option()] = TunePlan.seed,
    load: Annotated[
        str | None, typer.Option(metavar="NAME", help="Have the pool serve what was trained, by this name.")
    ] = None,
    launch: Annotated[
        str | None,
        typer.Option(help='What starts the training program: "accelerate launch --config_file fsdp.yaml".'),
    ] = None,
    json: Json = False,
) -> None:
    """Train a model on what the corpus holds: one turn of the loop in which it learns from its own traces.

    Exports what --where selects, trains with TRL, and writes weights or an adapter. docs/tuning.md shows the loop.
    Needs PyTorch: pip install "weavegen[training]", in this environment or in the one that --launch starts.

    Example: weavegen tune Qwen/Qwen3-8B --lora 32 --where "job_id = 3 and reward > 0" -o round-1 --load r1
    """
    methods = tuple(method or ["sft"])
    if strange := [one for one in methods if one not in EXPORTS]:
        raise UsageError(f"there is no method {strange[0]!r}: choose of {', '.join(EXPORTS)}")
    if lora and norms:
        raise UsageError("--lora and --norms train different weights: give one of them")
    if to.exists():
        raise UsageError(f"{to} exists: give another folder")
    command = shlex.split(launch) if launch else [sys.executable]
    if not command:
        raise UsageError("--launch is empty: give a command, such as .venv-gpu/bin/python")
    plan = TunePlan(
        model=model,
        data=str(to.absolute() / "data"),
        out=str(to.absolute()),
        methods=methods,
        lora=lora,
        norms=norms,
        window=window,
        epochs=epochs,
        batch=batch,
        rates=dict.fromkeys(RATES, rate) if rate is not None else RATES,
        most=most,
        seed=seed,
    )
    try:
        rows = collect(plan, where or [])
        (to / "plan.json").write_bytes(msgspec.json.format(msgspec.json.encode(plan)))
        train(command, to / "plan.json")
    except UsageError:
        shutil.rmtree(to, ignore_errors=True)
        raise
    if load is not None:
        from weavegen.pool import adapters

        adapters.load(members(), load, to)
    if json:
        losses = msgspec.json.decode((to / "losses.json").read_bytes())
        print_json({"out": str(to), "rows": rows, "losses": losses, "loaded": load})
        return
    for name, count in rows.items():
        out.print(f"{name}: {count:,} rows", markup=False)
    out.print(f"{to}: trained" + ("" if load is None else f", and served as {load}"), markup=False)


def collect(plan: TunePlan, where: list[str]) -> dict[str, int]:
    """Write the exports that the methods read. Returns their rows. Raises UsageError where one has none."""
    from weavegen import exports
    from weavegen.exports import write
    from weavegen.services import model_server

    found: dict[str, int] = {}
    read = {name for names in EXPORTS.values() for name in names}
    Path(plan.data).mkdir(parents=True)
    for name in dict.fromkeys(name for method in plan.methods for name in EXPORTS[method]):
        conditions = [CONDITIONS[name]] if name in CONDITIONS else []
        for condition in where:
            only, colon, rest = condition.partition(":")
            if not (colon and only in read):
                conditions.append(condition)
            elif only == name:
                conditions.append(rest)
        wanted = write.Export(
            format=exports.find(name),
            out=Path(plan.data) / name,
            where=" and ".join(f"({one})" for one in conditions) or None,
            simulation=model_server.simulated(configuration.load()),
        )
        with reading() as conn:
            found[name] = sum(write.export(conn, wanted).rows.values())
    return found


def train(command: list[str], plan: Path) -> None:
    """Run the training program. Raises WeavegenError where it fails."""
    try:
        # What trainers print is progress: standard output is for what was asked for, which may be JSON.
        done = subprocess.run([*command, "-m", "weavegen.training.tune", str(plan)], stdout=2, check=False)
    except OSError as error:
        raise UsageError(f"--launch: {command[0]} can't be started: {error.strerror}") from None
    if done.returncode != 0:
        hint = 'if a module is missing: pip install "weavegen[training]", or name its environment with --launch'
        raise WeavegenError(f"the training ended with exit code {done.returncode}; {hint}")
