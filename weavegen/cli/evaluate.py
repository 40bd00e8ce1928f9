"""The command that measures how well a model does: eval."""

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from weavegen import config as configuration
from weavegen.cli.app import Json, app, out, print_json, reading
from weavegen.cli.jobs import Param, Set, by_type, pairs
from weavegen.cli.pool import members
from weavegen.cli.watch import show as wait

if TYPE_CHECKING:
    from weavegen.evaluator.evaluation import Evaluation, Measure

TICKS = 12
"""That a trace may have by default."""


@app.command("eval")
def evaluate(
    model: Annotated[
        str | None,
        typer.Argument(help="A name that the pool serves, or a folder that its servers can load; else its model."),
    ] = None,
    file: Annotated[
        list[str] | None, typer.Option(help="A bootstrap file; repeatable. Default: tictactoe.py and sums.py.")
    ] = None,
    n: Annotated[int, typer.Option("-n", "--count", min=1, help="Traces of each file, done in both ways.")] = 32,
    ticks: Annotated[
        int | None, typer.Option(min=1, help=f"Ticks that a trace may have; {TICKS} by default.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The jobs' seed; by default one for evaluation.")] = None,
    param: Param = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Measure how well a model does as an agent, on seeds that it was not trained on.

    Success, legal and running blocks, samples for each block that is kept, and how far its answers can be trusted:
    docs/tuning.md says how each is measured.

    Example: weavegen eval models/round-1 -n 32
    """
    from weavegen.engine import enqueueing

    files = file or [str(enqueueing.BOOTSTRAPS / name) for name in ("tictactoe.py", "sums.py")]
    settings = {"ticks": TICKS} | by_type(pairs(set_)) | ({} if ticks is None else {"ticks": ticks})
    with serving(model) as name:
        found = run(name, files, n, settings, seed, pairs(param))
    if json:
        print_json(dataclasses.asdict(found))
    else:
        out.print(table([found]))


def run(
    model: str | None,
    files: Sequence[str],
    n: int,
    settings: Mapping[str, Any],
    seed: int | None = None,
    params: Mapping[str, Any] | None = None,
) -> "Evaluation":
    """Enqueue what is to be done, wait, and measure. What is to be measured overrides the settings."""
    from weavegen.engine import enqueueing
    from weavegen.evaluator.evaluation import HELD_OUT, SETTINGS, measure

    enqueueing.check_services(configuration.load(), model, workers=True)
    orders = enqueueing.orders(files, n, params)
    jobs = {
        name: enqueueing.submit(
            orders,
            name=f"eval {name}",
            seed=HELD_OUT if seed is None else seed,
            model=model,
            settings={**settings, **special},
        )
        for name, special in SETTINGS.items()
    }
    for job in jobs.values():
        wait(job, aside=True)
    with reading() as conn:
        return measure(conn, model or "the pool's model", jobs)


@contextlib.contextmanager
def serving(model: str | None) -> Iterator[str | None]:
    """The name that a model is served by; a folder is loaded into the pool's servers for the time being."""
    from weavegen.pool import adapters

    if model is None or not Path(model).is_dir():
        yield model
        return
    folder = Path(model).absolute()
    keys = members()
    name = f"{folder.name}-{hashlib.sha256(str(folder).encode()).hexdigest()[:6]}"
    adapters.load(keys, name, folder)
    try:
        yield name
    finally:
        adapters.unload(keys, name)


def table(found: "list[Evaluation]") -> Table:
    """Evaluations side by side."""
    drawn = Table(box=None, header_style="bold", pad_edge=False)
    drawn.add_column("")
    for one in found:
        drawn.add_column(one.model, justify="right", overflow="fold")
    for name, cells in lines(found):
        drawn.add_row(name, *cells)
    return drawn


def lines(found: "list[Evaluation]") -> Iterator[tuple[str, list[str]]]:
    """What was measured, a line each: its name, and a cell for each evaluation."""
    for name in found[0].success:
        yield f"success, {name}", [percent(one.success[name]) for one in found]
    yield "candidates that compile", [percent(one.legal) for one in found]
    yield "blocks that run", [percent(one.ran) for one in found]
    yield "candidates for a block", [plain(one.candidates_per_block) for one in found]
    yield "tokens for a block", [plain(one.tokens_per_block) for one in found]
    figures = [one.evaluator for one in found]
    yield "will it run? AUC", ["" if one is None or one.auc is None else f"{one.auc:.2f}" for one in figures]
    yield "will it run? Brier score", ["" if one is None else f"{one.brier:.3f}" for one in figures]


def percent(one: "Measure") -> str:
    """A share, with its interval."""
    return f"{100 * one.value:.0f}% ({100 * one.low:.0f} to {100 * one.high:.0f})"


def plain(one: "Measure") -> str:
    """A mean, with its interval."""
    places = 2 if one.value < 10 else 0
    return f"{one.value:,.{places}f} ({one.low:,.{places}f} to {one.high:,.{places}f})"
