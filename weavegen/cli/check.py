"""The command check: runs the first tick of a bootstrap file without a model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from weavegen import config as configuration
from weavegen.agents.tables import outcome_table, problem_map
from weavegen.cli.app import Result, command
from weavegen.cli.jobs import Network, Param, pairs
from weavegen.kernel.steps import Executed, Failure, Op


@command()
def check(
    file: Annotated[Path, typer.Argument(help="A bootstrap file.")], param: Param = None, network: Network = None
) -> Result:
    """Run only the first tick of a bootstrap file, in the sandbox. The exit code is 1 if any part of it failed.

    No model is asked: each yes/no question of a callback gets the probability 0.5.

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
    return Result(done, (text + "\n" for text in report(done, failures)), code=1 if failures else 0)


def failures_of(executed: Executed) -> list[Failure]:
    """All failures of one operation."""
    errors = [executed.error, *(view.error for view in executed.views)]
    errors += [evaluated.error for evaluated in executed.evaluations]
    return [error for error in errors if error is not None]


def report(done: dict[str, Executed], failures: list[Failure]) -> Iterator[str]:
    """What the first tick did, worded as in a trace."""
    if "begin" in done:
        yield outcome_table(done["bootstrap"], done["evaluate"].evaluations)
        yield problem_map(done["begin"].subagents)
        yield from (f"View: {view.title}\n{view.text}" for view in done["begin"].views if view.error is None)
    yield from (failure.traceback for failure in failures)
    if waits_for := done["bootstrap"].waits_for:
        yield f"The first tick runs up to a call of subagent {waits_for!r}. Only a model can continue from there."
    else:
        yield "The first tick fails." if failures else "The first tick runs."
