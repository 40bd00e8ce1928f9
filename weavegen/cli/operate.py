"""Commands that steer jobs and keep the corpus safe: retry, pause, resume, drain, retune, backup, restore."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Annotated, Any

import sqlalchemy as sa
import typer
from sqlalchemy.engine import make_url

from weavegen import config as configuration
from weavegen.cli.app import Json, app, out, print_json, reading
from weavegen.cli.complete import job_numbers
from weavegen.cli.jobs import by_type, pairs
from weavegen.errors import UsageError
from weavegen.store.models import Base, Job, JobState, TraceStatus

OneJob = Annotated[
    int | None,
    typer.Argument(help="A job's number; all jobs that are not over by default.", autocompletion=job_numbers),
]
File = Annotated[Path, typer.Argument(help="The backup's file.")]
SECONDS = 60.0
"""That a condition may take to be looked up."""


@app.command()
def retry(
    job: Annotated[int | None, typer.Option(help="Only traces of this job.")] = None,
    where: Annotated[
        str | None, typer.Option(help="An SQL condition over the table traces; all that failed by default.")
    ] = None,
    cancelled: Annotated[bool, typer.Option(help="Those that were cancelled, not those that failed.")] = False,
    new_seed: Annotated[
        bool, typer.Option(help="Give them other seeds; with its old one a trace may fail the same way.")
    ] = False,
    dry_run: Annotated[bool, typer.Option(help="Only say how many there are.")] = False,
    json: Json = False,
) -> None:
    """Queue failed traces once more, as new traces of their jobs. The failed ones stay, as evidence.

    A trace is left out while a retry of it is open, and for good once one has ended (traces.retry_of).

    Example: weavegen retry --job 3 --where "failure_kind = 'model' and ticks < 3"
    """
    from weavegen.store import jobs, reports

    if job is None and where is None:
        raise UsageError("give --job, --where or both: which traces to retry")
    status = TraceStatus.CANCELLED if cancelled else TraceStatus.FAILED
    with reading() as conn:
        if job is not None:
            reports.jobs(conn, job)
        rows = reports.matching(conn, f"select id from traces where status = '{status}'", where or None, SECONDS)
        conn.rollback()
        matching, ids = jobs.retry(
            conn, [int(row[0]) for row in rows], [status], job_id=job, new_seed=new_seed, dry_run=dry_run
        )
        held = jobs.not_active(conn, ids)
        conn.commit()
    if json:
        print_json({"matching": matching, "retried": ids, "dry_run": dry_run})
        return
    done = matching - len(ids)
    what = "would be queued" if dry_run else "queued once more"
    skipped = f", {done} of them left out (a retry of theirs is open or has ended)" if done else ""
    out.print(f"{matching} {status} traces match{skipped}: {len(ids)} {what}")
    for number, state in held.items():
        out.print(f"job {number} is {state}: they start after  weavegen resume {number}")


@app.command()
def pause(job: OneJob = None, json: Json = False) -> None:
    """Take no further step of a job's traces. Steps in flight end and are stored; live processes stay.

    The time does not count against the traces' time budget, and other jobs get the places.

    Example: weavegen pause 3
    """
    set_state(JobState.PAUSED, job, json)


@app.command()
def drain(job: OneJob = None, json: Json = False) -> None:
    """Let a job's running traces run to their end, and start no queued ones.

    Example: weavegen drain 3
    """
    set_state(JobState.DRAINING, job, json)


@app.command()
def resume(job: OneJob = None, json: Json = False) -> None:
    """Undo pause and drain.

    Example: weavegen resume 3
    """
    set_state(JobState.ACTIVE, job, json)


def set_state(state: JobState, job: int | None, json: bool) -> None:
    from weavegen.store import jobs

    with reading() as conn:
        changed = jobs.set_state(conn, state, job)
        conn.commit()
    if json:
        print_json({"jobs": changed, "state": str(state)})
    elif changed:
        out.print(f"{state}: {', '.join(f'job {number}' for number in changed)}")
    else:
        out.print(f"nothing to do: {'no job is open' if job is None else f'job {job} is {state}'}")


@app.command()
def retune(
    job: Annotated[int, typer.Argument(help="A job's number.", autocompletion=job_numbers)],
    values: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE...", help="As for enqueue --set; TYPE.KEY: of one type."),
    ],
    json: Json = False,
) -> None:
    """Change the settings of a job, also while it runs.

    A tick that has begun ends under the settings that it was begun with; the next one takes the new ones. Budgets
    (ticks, blocks, until_bytes, sampled_tokens, time_budget) are judged by the newest settings at the end of a
    tick. A trace that a budget has ended stays ended, whatever the budget is raised to. `network` holds for live
    processes that are started from now on. `KEY=null` takes away a limit.

    Example: weavegen retune 3 ticks=40 action.temperature=0.8
    """
    from weavegen.store import jobs

    with reading() as conn:
        tuned = jobs.retune(conn, job, by_type(pairs(values)))
        conn.commit()
        open = jobs.open_traces(conn, job)
    if json:
        print_json({"job": job, "revision": tuned.revision, "settings": tuned.settings, "changed": tuned.changed})
    elif tuned.changed:
        out.print(
            f"job {job}, revision {tuned.revision} of its settings: {open.get('running', 0)} running traces take "
            f"it with their next tick, {open.get('queued', 0)} queued ones when they start"
        )
    else:
        out.print(f"job {job} has these settings already: nothing was changed")


@app.command()
def backup(file: File, json: Json = False) -> None:
    """Write the whole corpus into one file, by pg_dump. Traces may run meanwhile: it is as of one moment.

    Example: weavegen backup corpus.dump
    """
    from weavegen.services import postgres

    if not file.parent.is_dir():
        raise UsageError(f"{file.parent} is no folder: give a file in one that exists")
    with postgres.running(configuration.load()) as url:
        # Under its name it is always a whole one.
        draft = file.with_name(file.name + ".part")
        try:
            client(url, "pg_dump", "--format=custom", f"--file={draft.absolute()}")
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)
    size = file.stat().st_size
    if json:
        print_json({"file": str(file), "bytes": size})
    else:
        out.print(f"{file}: {size / 1e6:.1f} MB", markup=False)


@app.command()
def restore(file: File, json: Json = False) -> None:
    """Read a backup into an installation without jobs. After `weavegen up` its open traces go on.

    Their live processes are rebuilt, by doing again what they had done.

    Example: WEAVEGEN_HOME=/new/home weavegen restore corpus.dump
    """
    from weavegen.services import postgres, schema
    from weavegen.store import steps, views
    from weavegen.store.session import make_engine

    if not file.is_file():
        raise UsageError(f"{file} is no file: give one that `weavegen backup` wrote")
    run("pg_restore", "--list", str(file.absolute()))
    config = configuration.load()
    ours = config.database_url is None and postgres.find(config) is None
    if config.database_url is None:
        postgres.start(config)
    url = postgres.database_url(config)
    engine = make_engine(url)
    try:
        postgres.check(config)
        schema.upgrade(url)  # which also makes the role that reads, with its privileges on tables to come
        with engine.begin() as conn:
            found = conn.execute(sa.select(sa.func.count()).select_from(Job)).scalar_one()
            if found:
                raise UsageError(
                    f"there are {found} jobs here already: set WEAVEGEN_HOME (or DATABASE_URL) to an installation "
                    "without any"
                )
            views.drop(conn)
            Base.metadata.drop_all(conn)
            conn.execute(sa.text("drop table alembic_version"))
            conn.execute(sa.text("drop function if exists queue_blocks()"))  # of a trigger of blocks
        client(
            url, "pg_restore", "--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error",
            str(file.absolute()),
        )  # fmt: skip
        schema.upgrade(url)
        with engine.begin() as conn:
            steps.give_back(conn)
            steps.leave_hosts(conn)
            rows = conn.execute(sa.text("select status, count(*) as number from traces group by 1"))
            counts = {row.status: row.number for row in rows}
    finally:
        engine.dispose()
        if ours:
            postgres.stop(config)
    if json:
        print_json(counts)
    else:
        out.print(", ".join(f"{number} traces {status}" for status, number in counts.items()) or "no traces")


def client(url: str, program: str, *arguments: str) -> None:
    """Run one of PostgreSQL's own programs on the database at `url`. Raises UsageError."""
    place = make_url(url).set(drivername="postgresql")
    # A password on a command line is read by everyone on the machine.
    dsn = place._replace(password=None).render_as_string(hide_password=False)
    secret = {"PGPASSWORD": str(place.password)} if place.password else {}
    run(program, f"--dbname={dsn}", *arguments, **secret)


def run(program: str, *arguments: str, **environ: str) -> None:
    """Run it from the wheel of the embedded PostgreSQL, else from the PATH. Raises UsageError."""
    done = subprocess.run([find(program), *arguments], env=os.environ | environ, capture_output=True, text=True)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise UsageError(f"{program} failed: {' '.join(said[:2]) or 'it said nothing'}")


def find(program: str) -> str:
    from weavegen.services import postgres

    try:
        return str(postgres.binaries() / program)
    except UsageError:
        found: Any = shutil.which(program)
        if found is None:
            raise UsageError(f"there is no {program} here: install PostgreSQL's client programs") from None
        return str(found)
