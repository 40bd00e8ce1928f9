"""The command fork: starts traces that go on from a block of another trace."""

from typing import Annotated

import typer

from weavegen import __version__
from weavegen.cli.app import Result, Seed, command, writing
from weavegen.cli.complete import trace_numbers
from weavegen.cli.jobs import JobName, Set, by_type, pairs
from weavegen.errors import UsageError

MAX_FORKS = 100_000
"""Per command. Each fork copies the shared blocks when it starts."""


@command()
def fork(
    trace: Annotated[
        int,
        typer.Argument(
            help="The number of a trace. It may be running, over, or a fork.", autocompletion=trace_numbers
        ),
    ],
    at: Annotated[int, typer.Option(help="Index of the first block that is written anew.")],
    n: Annotated[int, typer.Option("-n", "--count", help="Number of forks.")] = 1,
    seed: Seed = None,
    set_: Set = None,
    name: JobName = None,
) -> Result:
    """Queue traces that share the blocks of a trace up to an index, and continue from there with other seeds.

    The forks are a job of their own, with the settings of the trace's job; --set changes them from that block on.
    The environment of a fork is rebuilt: the actions of the shared blocks run again. Blocks of one step stay
    together: an error or observation at the index is kept, and the block after it is the first new one.

    Example: weavegen fork 17 --at 42 -n 8 --set action.temperature=1.2
    """
    from weavegen.engine import forking
    from weavegen.engine.enqueueing import job_seed

    if not 1 <= n <= MAX_FORKS:
        raise UsageError(f"-n {n}: give a number from 1 to {MAX_FORKS:,}")
    seed = job_seed(seed)
    values = by_type(pairs(set_))
    with writing() as conn:
        cut = forking.plan(conn, trace, at)
        job, ids = forking.submit(conn, cut, n, seed=seed, values=values, name=name, version=__version__)
    notes = []
    if cut.trace_id != trace:
        notes.append(f"trace {trace} shares these blocks with trace {cut.trace_id}")
    if cut.at != at:
        kept = f"block {at} is" if cut.at == at + 1 else f"blocks {at} to {cut.at - 1} are"
        notes.append(f"{kept} of the same step as block {at - 1}, and kept")
    line = (
        f"job {job} enqueued: {'1 fork' if n == 1 else f'{n} forks'} of trace {cut.trace_id} at block {cut.at}"
        + (f" ({'; '.join(notes)})" if notes else "")
        + f": see them with  weavegen status {job}"
    )
    return Result({"job": job, "traces": ids, "fork_of": cut.trace_id, "fork_at": cut.at}, line)
