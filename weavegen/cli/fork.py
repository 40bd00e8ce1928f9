"""The command that has traces go on from a block of another: fork."""

from typing import Annotated

import typer

from weavegen import __version__
from weavegen.cli.app import Json, app, out, print_json, reading
from weavegen.cli.complete import settings_names, trace_numbers
from weavegen.cli.jobs import by_type, pairs
from weavegen.errors import UsageError

MOST = 100_000
"""Forks of one command. Each one's shared blocks are copied when it starts."""


@app.command()
def fork(
    trace: Annotated[
        int,
        typer.Argument(
            help="A trace's number, also of one that runs, ended, failed or is a fork.",
            autocompletion=trace_numbers,
        ),
    ],
    at: Annotated[int, typer.Option(help="Index of the block that is written anew; those before it stay.")],
    n: Annotated[int, typer.Option("-n", "--count", help="How many forks.")] = 1,
    seed: Annotated[int | None, typer.Option(help="Equal seeds give equal forks from an equal server.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="KEY=VALUE as for enqueue, from that block on; else as the trace's job has it.",
            autocompletion=settings_names,
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="What to call their job.")] = None,
    json: Json = False,
) -> None:
    """Queue traces that share another one's blocks up to an index, and go on from there with other seeds.

    They are a job of their own. The environment of each is rebuilt by doing again what the trace had done by then.
    Blocks that came out of one step together stay together: where the block at the index is such a one (an error
    behind its action, an observation), it stays, and the one after it is the first to be written.

    Example: weavegen fork 17 --at 42 -n 8 --set action.temperature=1.2
    """
    from weavegen.engine import forking
    from weavegen.engine.enqueueing import job_seed

    if not 1 <= n <= MOST:
        raise UsageError(f"-n {n}: give a number from 1 to {MOST:,}")
    seed = job_seed(seed)
    values = by_type(pairs(set_))
    with reading() as conn:
        cut = forking.plan(conn, trace, at)
        job, ids = forking.submit(conn, cut, n, seed=seed, values=values, name=name, version=__version__)
        conn.commit()
    if json:
        print_json({"job": job, "traces": ids, "fork_of": cut.trace_id, "fork_at": cut.at})
        return
    notes = []
    if cut.trace_id != trace:
        notes.append(f"trace {trace} has these blocks of trace {cut.trace_id}")
    if cut.at != at:
        came = f"block {at}" if cut.at == at + 1 else f"blocks {at} to {cut.at - 1}"
        notes.append(f"{came} came out of one step with block {at - 1}, and stay")
    what = "1 fork" if n == 1 else f"{n} forks"
    out.print(
        f"job {job} enqueued: {what} of trace {cut.trace_id} at block {cut.at}"
        + (f" ({'; '.join(notes)})" if notes else "")
        + f": see them with  weavegen status {job}"
    )
