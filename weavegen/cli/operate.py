"""Commands that steer jobs and back the corpus up: retry, pause, resume, drain, retune, fork, backup, restore."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Annotated

import typer
from psycopg.conninfo import make_conninfo

from weavegen import config as configuration
from weavegen import sql
from weavegen.cli.app import QUERY_SECONDS, Result, Seed, command, writing
from weavegen.cli.complete import job_numbers, trace_numbers
from weavegen.cli.jobs import JobName, Set, by_type, pairs
from weavegen.errors import UsageError, required
from weavegen.kernel.settings import renamed
from weavegen.services import postgres, schema
from weavegen.store import jobs, reports, steps, tables, traces, views
from weavegen.store.session import unpooled
from weavegen.store.states import JobState, TraceStatus
from weavegen.store.urls import parts
from weavegen.version import __version__

OneJob = Annotated[int | None, typer.Argument(help="Default: all jobs that are not over.", autocompletion=job_numbers)]
File = Annotated[Path, typer.Argument(help="The backup's file.")]


@command()
def retry(
    job: Annotated[int | None, typer.Option(help="Retry only traces of this job.")] = None,
    where: Annotated[str | None, typer.Option(help="An SQL condition over traces. Default: all that failed.")] = None,
    cancelled: Annotated[bool, typer.Option(help="Retry cancelled traces instead of failed ones.")] = False,
    new_seed: Annotated[bool, typer.Option(help="Use new seeds: with its old seed, a trace may fail again.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Only print how many traces match.")] = False,
) -> Result:
    """Queue failed traces again, as new traces of the same jobs. The failed traces stay in the corpus.

    A trace is left out if a retry of it is open or has ended (traces.retry_of).

    Example: weavegen retry --job 3 --where "failure_kind = 'model' and ticks < 3"
    """
    if job is None and not where:  # an empty --where too: perhaps a shell variable was not set
        raise UsageError("give --job, --where or both: which traces to retry")
    status = TraceStatus.CANCELLED if cancelled else TraceStatus.FAILED
    with writing() as conn:
        if job is not None:
            reports.jobs(conn, job)
        query = f"select id from traces where status = '{status}'"
        found = [int(id) for (id,) in reports.matching(conn, query, where or None, QUERY_SECONDS)]
        conn.rollback()
        matching, ids = jobs.retry(conn, found, [status], job_id=job, new_seed=new_seed, dry_run=dry_run)
        idle = {row.id: row.state for row in sql.run(conn, "store/not_active_jobs", traces=ids)}
    left_out = matching - len(ids)
    action = "would be queued" if dry_run else "queued once more"
    because = f", {left_out} of them left out (a retry of them is open or has ended)" if left_out else ""
    lines = [f"{matching} {status} traces match{because}: {len(ids)} {action}"]
    lines += [f"job {number} is {state}: they start after  weavegen resume {number}" for number, state in idle.items()]
    return Result({"matching": matching, "retried": ids, "dry_run": dry_run}, lines)


@command()
def pause(job: OneJob = None) -> Result:
    """Start no more steps of a job. Steps that run now finish, and their results are stored.

    Live environments stay. The pause does not count against the traces' time budget, and other jobs use the workers.

    Example: weavegen pause 3
    """
    return set_state(JobState.PAUSED, job)


@command()
def drain(job: OneJob = None) -> Result:
    """Let a job's running traces run to their end, and start none of its queued traces.

    Example: weavegen drain 3
    """
    return set_state(JobState.DRAINING, job)


@command()
def resume(job: OneJob = None) -> Result:
    """Undo pause and drain.

    Example: weavegen resume 3
    """
    return set_state(JobState.ACTIVE, job)


def set_state(state: JobState, job: int | None) -> Result:
    with writing() as conn:
        changed = jobs.set_state(conn, state, job)
    line = f"{state}: {', '.join(f'job {number}' for number in changed)}"
    if not changed:
        line = f"nothing to do: {'no job is open' if job is None else f'job {job} is {state}'}"
    return Result({"jobs": changed, "state": str(state)}, line)


@command()
def retune(
    job: Annotated[int, typer.Argument(help="The job's number.", autocompletion=job_numbers)],
    values: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE...", help="As for enqueue --set; TYPE.KEY=VALUE: for one block type."),
    ],
) -> Result:
    """Change the settings of a job, which may be running.

    A tick keeps the settings that it began with; the next tick uses the new ones. Budgets (ticks, blocks,
    until_bytes, sampled_tokens, time_budget) are checked against the newest settings at the end of a tick. A trace
    that a budget has ended stays ended, even if the budget is raised. `network` applies to environments that are
    started from now on. `KEY=null` removes a limit.

    Example: weavegen retune 3 ticks=40 action.temperature=0.8
    """
    with writing() as conn:
        tuned = jobs.retune(conn, job, by_type(pairs(values)))
        conn.commit()
        open = {row.status: row.traces for row in sql.run(conn, "store/open_traces", job=job)}
    line = f"job {job} has these settings already: nothing was changed"
    if tuned.changed:
        line = (
            f"job {job}, revision {tuned.revision} of its settings: {open.get('running', 0)} running traces use "
            f"it from their next tick, {open.get('queued', 0)} queued traces from their start"
        )
    value = {"job": job, "revision": tuned.revision, "settings": tuned.settings, "changed": tuned.changed}
    return Result(value, line)


@command()
def backup(file: File) -> Result:
    """Write the whole corpus into one file with pg_dump. Traces may run meanwhile; the file is one snapshot.

    Example: weavegen backup corpus.dump
    """
    if not file.parent.is_dir() or (file.exists() and not file.is_file()):
        raise UsageError(f"{file} can't be a file: give one in a folder that exists")
    with postgres.running(configuration.load()) as url:
        # Renamed when it is complete: an incomplete file never has the backup's name.
        draft = Path(f"{file.resolve()}.part")
        try:
            run_on(url, "pg_dump", "--format=custom", f"--file={draft}")
            draft.replace(file.resolve())
        finally:
            draft.unlink(missing_ok=True)
    size = file.stat().st_size
    return Result({"file": str(file), "bytes": size}, f"{file}: {size / 1e6:.1f} MB")


@command()
def restore(file: File) -> Result:
    """Read a backup into an installation without jobs. After `weavegen up` its open traces continue.

    Their environments are rebuilt: the actions of recorded blocks run again.

    Example: WEAVEGEN_HOME=/new/home weavegen restore corpus.dump
    """
    if not file.is_file():
        raise UsageError(f"{file} is not a file: give one that `weavegen backup` wrote")
    run("pg_restore", "--list", str(file.absolute()))
    with postgres.running(configuration.load(), create=True) as url:
        schema.upgrade(url)  # also creates the reader role, with its privileges on tables that will be created
        database = unpooled(url)
        with database.begin() as conn:
            if number := sql.run(conn, "cli/count_jobs").scalar_one():
                raise UsageError(
                    f"there are {number} jobs here already: set WEAVEGEN_HOME (or DATABASE_URL) to an installation "
                    "without any"
                )
            views.drop(conn)
            tables.drop(conn)
        options = ("--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error")
        run_on(url, "pg_restore", *options, str(file.absolute()))
        schema.upgrade(url)
        with database.begin() as conn:
            steps.give_back(conn)
            steps.unbind_hosts(conn)
            counts = {row.status: row.number for row in sql.run(conn, "cli/traces_by_status")}
    return Result(counts, ", ".join(f"{number} traces {status}" for status, number in counts.items()) or "no traces")


def run_on(url: str, program: str, *arguments: str) -> None:
    """Run a PostgreSQL client program on the database at `url`. Raises UsageError."""
    # The password goes into the environment: everyone on the machine can read command lines.
    place = parts(url)
    secret = {"PGPASSWORD": place.pop("password")} if "password" in place else {}
    run(program, f"--dbname={make_conninfo(**place)}", *arguments, **secret)


def run(program: str, *arguments: str, **environ: str) -> None:
    """Run a program of the embedded PostgreSQL's wheel, or else of the PATH. Raises UsageError."""
    try:
        place = str(postgres.binaries() / program)
    except UsageError:
        place = required(shutil.which(program), f"there is no {program} here: install PostgreSQL's client programs")
    done = subprocess.run([place, *arguments], env=os.environ | environ, capture_output=True, text=True)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.strip()]
        raise UsageError(f"{program} failed: {' '.join(errors[:2]) or 'it printed no reason'}")


MAX_FORKS = 100_000
"""Per command. Each fork copies the shared blocks when it starts."""


@command()
def fork(
    trace: Annotated[
        int,
        typer.Argument(help="The number of a trace. It may be running, over, or a fork.", autocompletion=trace_numbers),
    ],
    at: Annotated[int, typer.Option(help="Index of the first new block.")],
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
        if cut.trace_id != trace:
            own = sql.run(conn, "store/current_settings", job=traces.job_of(conn, trace)).scalar_one()
            values = jobs.merged(renamed(own), values)
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
