"""The command eval: measures how well a model does as an agent."""

import contextlib
import secrets
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from weavegen import config as configuration
from weavegen.cli.app import Result, command, reading
from weavegen.cli.jobs import Param, Set, by_type, pairs
from weavegen.cli.pool import load_adapter, unload_adapter
from weavegen.cli.watch import show as wait
from weavegen.errors import UsageError

if TYPE_CHECKING:
    from weavegen.evaluator.evaluation import Evaluation, Measure

DEFAULT_TICKS = 12


@command("eval")
def evaluate(
    model: Annotated[
        str | None,
        typer.Argument(help="A model of the pool, or a folder that its servers can load. Default: the pool's model."),
    ] = None,
    file: Annotated[list[str] | None, typer.Option(help="Repeatable. Default: tictactoe.py and sums.py.")] = None,
    n: Annotated[int, typer.Option("-n", "--count", min=1, help="Traces of each file in each of the two jobs.")] = 32,
    ticks: Annotated[int | None, typer.Option(min=1, help=f"Ticks per trace. Default: {DEFAULT_TICKS}.")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed. Default: one reserved for evaluation.")] = None,
    param: Param = None,
    set_: Set = None,
) -> Result:
    """Measure how well a model does as an agent, on seeds that are not used for training.

    It measures success, candidates that compile, blocks that run, candidates per kept block, and how reliable the
    model's yes/no answers are. docs/tuning.md defines each measure.

    Example: weavegen eval models/round-1 -n 32
    """
    from weavegen.engine import enqueueing

    files = file or [str(enqueueing.BOOTSTRAPS / name) for name in ("tictactoe.py", "sums.py")]
    settings = {"ticks": DEFAULT_TICKS} | by_type(pairs(set_)) | ({} if ticks is None else {"ticks": ticks})
    with serving(model) as name:
        evaluation = run(name, files, n, settings, seed, pairs(param))
    return Result(evaluation, table([evaluation.model], lines([evaluation])))


def run(
    model: str | None,
    files: Sequence[str],
    n: int,
    settings: Mapping[str, Any],
    seed: int | None = None,
    params: Mapping[str, Any] | None = None,
    enqueue: Callable[..., int] | None = None,
) -> "Evaluation":
    """Enqueue the evaluation jobs, wait for them, and measure. The jobs' own settings override `settings`."""
    from weavegen.engine import enqueueing
    from weavegen.evaluator.evaluation import HELD_OUT, SETTINGS, measure

    enqueueing.check_services(configuration.load(), model, workers=True)
    orders, types = enqueueing.orders(files, n, params), settings.get("types", {})
    jobs = {
        name: (enqueue or enqueueing.enqueue)(
            traces=orders,
            name=f"eval {name}",
            seed=HELD_OUT if seed is None else seed,
            model=model,
            settings={**settings, **special, "types": {type: without(own, special) for type, own in types.items()}},
        )
        for name, special in SETTINGS.items()
    }
    for job in jobs.values():
        wait(job, stderr=True)
    with reading() as conn:
        return measure(conn, model or "the pool's model", jobs)


def without(settings: Mapping[str, Any], names: Container[str]) -> dict[str, Any]:
    """Settings without those of these names."""
    return {name: value for name, value in settings.items() if name not in names}


@contextlib.contextmanager
def serving(model: str | None) -> Iterator[str | None]:
    """Yields the model's name in the pool. A folder is loaded into the pool's servers temporarily."""
    if model is None or not Path(model).is_dir():
        yield model
        return
    folder = Path(model).absolute()
    name = f"{folder.name}-{secrets.token_hex(3)}"  # of its own: servers may still have older weights of this folder
    load_adapter(name, folder)
    try:
        yield name
    finally:
        with contextlib.suppress(UsageError):  # what was measured is worth more than the memory of servers
            unload_adapter(name)


def lines(evaluations: "list[Evaluation]") -> Iterator[tuple[str, list[str]]]:
    """The name of each measure, with a cell for each evaluation."""
    for name in evaluations[0].success:
        yield f"success, {name}", [percent(evaluation.success[name]) for evaluation in evaluations]
        if all(name in evaluation.unaided_success for evaluation in evaluations):
            yield f"unaided, {name}", [percent(evaluation.unaided_success[name]) for evaluation in evaluations]
    yield "candidates that compile", [percent(evaluation.legal) for evaluation in evaluations]
    yield "blocks that run", [percent(evaluation.ran) for evaluation in evaluations]
    yield "candidates for a block", [mean(evaluation.candidates_per_block) for evaluation in evaluations]
    yield "tokens for a block", [mean(evaluation.tokens_per_block) for evaluation in evaluations]
    figures = [evaluation.evaluator for evaluation in evaluations]
    yield "will it run? AUC", ["" if row is None or row.auc is None else f"{row.auc:.2f}" for row in figures]
    yield "will it run? Brier score", ["" if row is None else f"{row.brier:.3f}" for row in figures]


def table(headings: Sequence[str], lines: Iterable[tuple[str, list[str]]]) -> Table:
    """A line for each measure, with a column for each heading."""
    drawn = Table("", box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        drawn.add_column(heading, justify="right", overflow="fold")
    for name, cells in lines:
        drawn.add_row(name, *cells)
    return drawn


def percent(measure: "Measure") -> str:
    """A share with its interval; unknown where no trace has one, such as the success of a task without evaluations."""
    return f"{measure.value:.0%} ({100 * measure.low:.0f} to {100 * measure.high:.0f})" if measure.of else "unknown"


def mean(measure: "Measure") -> str:
    """A mean with its interval."""
    places = 2 if measure.value < 10 else 0
    return f"{measure.value:,.{places}f} ({measure.low:,.{places}f} to {measure.high:,.{places}f})"
