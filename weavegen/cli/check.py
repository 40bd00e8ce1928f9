"""The command that tries a bootstrap file: its first tick alone, without a model."""

from pathlib import Path
from typing import Annotated

import typer

from weavegen import config as configuration
from weavegen.agents.tables import outcome_table, problem_map
from weavegen.cli.app import Json, app, out, print_json
from weavegen.cli.jobs import Network, Param, pairs
from weavegen.kernel.steps import Executed, Failure, Op
from weavegen.monitoring import display


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A bootstrap file.")],
    param: Param = None,
    network: Network = None,
    json: Json = False,
) -> None:
    """Run a bootstrap file's first tick alone, in the sandbox, and report. Exit code 1 if anything in it failed.

    Questions that its callbacks ask the model get a half for an answer.

    Example: weavegen check bootstraps/tictactoe.py -p opponent=minimax
    """
    from weavegen.engine import enqueueing
    from weavegen.sandbox.environment import dry_run

    [order] = enqueueing.orders([file], 1, pairs(param))
    enqueueing.compile_bootstrap(order)
    ops: tuple[Op, ...] = ("bootstrap", "evaluate", "begin")
    results = dry_run(configuration.load(), order.source, order.params, ops=ops, network=network or "none")
    done: dict[str, Executed] = dict(zip(ops, results, strict=False))
    failures = [failure for executed in done.values() for failure in failures_of(executed)]
    if json:
        print_json(done)
    else:
        report(done, failures)
    raise typer.Exit(1 if failures else 0)


def failures_of(executed: Executed) -> list[Failure]:
    """All that went wrong in one operation."""
    errors = [executed.error, *(view.error for view in executed.views)]
    errors += [evaluated.error for evaluated in executed.evaluations]
    return [error for error in errors if error is not None]


def report(done: dict[str, Executed], failures: list[Failure]) -> None:
    """Print what the first tick did, as the trace would have it."""
    texts: list[str] = []
    if "begin" in done:
        texts.append(outcome_table(done["bootstrap"], done["evaluate"].evaluations))
        texts.append(problem_map(done["begin"].subagents))
        texts += [f"View: {view.title}\n{view.text}" for view in done["begin"].views if view.error is None]
    texts += [failure.traceback for failure in failures]
    texts.append("The first tick fails." if failures else "The first tick runs.")
    if waits_for := done["bootstrap"].waits_for:
        texts[-1] = (
            f"The first tick runs to where it waits for {waits_for!r}: only a model can tell what comes then."
        )
    for text in texts:
        out.print(display.harmless(text) + "\n", markup=False)
