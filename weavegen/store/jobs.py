"""Jobs in Postgres: traces enqueued in one transaction; paused, retuned, retried."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from weavegen import sql
from weavegen.errors import Unserved, UsageError
from weavegen.kernel.harbor import HarborTask
from weavegen.kernel.packages import Packages
from weavegen.kernel.seeds import derive_seed
from weavegen.kernel.settings import renamed, settings
from weavegen.kernel.template import Template
from weavegen.store.models.traces import (
    BOOTSTRAPS,
    HARBOR_TASKS,
    JOB_SETTINGS,
    JOBS,
    PACKAGES,
    STARTING_FILES,
    TEMPLATES,
    TRACES,
)
from weavegen.store.states import JobState, TraceStatus
from weavegen.store.traces import OPEN, job_of

MAX_FAILED_SCORES = 3
"""The failed score at which a job without any score is paused. It is asked for again after `resume`."""
SCORES_LOCK = 0x77656178
"""Advisory lock of transactions in which scores fail."""


@dataclass(frozen=True)
class Order:
    """One trace to be written."""

    name: str
    """File name of the bootstrap."""
    source: str
    params: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    """None: derived from the job's seed and the trace's number."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Files that it needs in /app, by path."""
    harbor: tuple[HarborTask, bytes] | None = None
    """Its Harbor task, and the archive of the task's files."""


def enqueue(
    conn: sa.Connection,
    orders: Sequence[Order],
    *,
    template: Template | None = None,
    packages: Packages | None = None,
    files: bytes | None = None,
    **values: Any,
) -> int:
    """Write a job and its queued traces. Returns the job's id. `values`: other columns of the table jobs.

    `template` None: the model's own. `packages`: what its code can import; None: the standard library alone. `files`:
    an archive of the files with which /app begins.
    """
    if packages is not None:
        values["packages_id"] = content_id(conn, PACKAGES, packages.sha256, **msgspec.structs.asdict(packages))
    if files is not None:
        digest = hashlib.sha256(files).hexdigest()
        values["starting_files_id"] = content_id(conn, STARTING_FILES, digest, archive=files)
    if template is not None:
        values["template_id"] = template_id(conn, template)
    values["asked_model"] = values["model"]
    job_id = int(conn.execute(sa.insert(JOBS).values(values).returning(JOBS.c.id)).scalar_one())
    bootstraps = bootstrap_ids(conn, orders)
    harbor = {id(order.harbor): order.harbor for order in orders if order.harbor is not None}
    tasks = {key: harbor_task_id(conn, *task) for key, task in harbor.items()}
    rows = [
        {
            "job_id": job_id,
            "number": number,
            "bootstrap_id": bootstraps[order.source],
            "harbor_task_id": None if order.harbor is None else tasks[id(order.harbor)],
            "params": order.params,
            "seed": order.seed if order.seed is not None else derive_seed(values["seed"], "trace", number),
        }
        for number, order in enumerate(orders, 1)
    ]
    conn.execute(sa.insert(TRACES), rows)
    return job_id


def bootstrap_ids(conn: sa.Connection, orders: Sequence[Order]) -> dict[str, int]:
    """Ids of bootstraps by source. New ones are written."""
    sources = {order.source: order.name for order in orders}
    hashes = {hashlib.sha256(source.encode()).hexdigest(): source for source in sources}
    rows = [{"sha256": digest, "name": sources[source], "source": source} for digest, source in hashes.items()]
    return {hashes[digest]: id for digest, id in content_ids(conn, BOOTSTRAPS, rows).items()}


def name_model(conn: sa.Connection, trace_id: int, model: str) -> None:
    """Record the model that a job's first trace found, where the job asked for none."""
    job = sa.select(TRACES.c.job_id).where(TRACES.c.id == trace_id).scalar_subquery()
    conn.execute(sa.update(JOBS).where(JOBS.c.id == job, JOBS.c.model.is_(None)).values(model=model))


def content_ids(conn: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Ids of the rows of contents, by hash. New ones are written."""
    conn.execute(insert(table).on_conflict_do_nothing(), rows)
    known = sa.select(table.c.sha256, table.c.id).where(table.c.sha256.in_([row["sha256"] for row in rows]))
    return {row.sha256: row.id for row in conn.execute(known)}


def content_id(conn: sa.Connection, table: sa.Table, digest: str, **values: Any) -> int:
    """Id of the row of one content."""
    return content_ids(conn, table, [{"sha256": digest, **values}])[digest]


def template_id(conn: sa.Connection, template: Template) -> int:
    """Id of a template. A new one is written."""
    return content_id(conn, TEMPLATES, template.sha256, texts=msgspec.to_builtins(template))


def harbor_task_id(conn: sa.Connection, task: HarborTask, files: bytes) -> int:
    """Id of a Harbor task. A new one is written."""
    digest = hashlib.sha256(msgspec.json.encode(task) + files).hexdigest()
    values = {"name": task.name, "task": msgspec.to_builtins(task), "metadata": task.metadata, "files": files}
    return content_id(conn, HARBOR_TASKS, digest, **values)


def harbor_files(conn: sa.Connection, digest: str) -> bytes:
    """The archive with the files of the Harbor task with this hash."""
    query = sa.select(HARBOR_TASKS.c.files).where(HARBOR_TASKS.c.sha256 == digest)
    return bytes(conn.execute(query).scalar_one())


def images_in_use(conn: sa.Connection) -> set[str]:
    """The names of the Harbor tasks of open traces."""
    return set(sql.run(conn, "store/images_in_use").scalars())


def packages(conn: sa.Connection, digest: str) -> Packages:
    """The packages with this hash."""
    query = sa.select(*PACKAGES.c["requirements", "folder", "versions"]).where(PACKAGES.c.sha256 == digest)
    return Packages(**conn.execute(query).one()._mapping)


def starting_files(conn: sa.Connection, digest: str) -> bytes:
    """The archive with this hash."""
    query = sa.select(STARTING_FILES.c.archive).where(STARTING_FILES.c.sha256 == digest)
    return bytes(conn.execute(query).scalar_one())


def record_template(conn: sa.Connection, job_id: int, template: Template) -> Template:
    """Record the template of a job's prompts. Returns the recorded one: the first stays."""
    unset = sa.and_(JOBS.c.id == job_id, JOBS.c.template_id.is_(None))
    conn.execute(sa.update(JOBS).where(unset).values(template_id=template_id(conn, template)))
    query = sa.select(TEMPLATES.c.texts).join(JOBS, JOBS.c.template_id == TEMPLATES.c.id)
    return msgspec.convert(conn.execute(query.where(JOBS.c.id == job_id)).scalar_one(), Template)


def lock_jobs(conn: sa.Connection, *where: sa.ColumnElement[bool]) -> Sequence[Any]:
    """Jobs, locked against other commands until the transaction ends. Workers can still read them."""
    return conn.execute(sa.select(JOBS).where(*where).order_by(JOBS.c.id).with_for_update(key_share=True)).all()


def lock_job(conn: sa.Connection, job_id: int) -> Any:
    """One job, locked likewise. Raises UsageError if there is no such job."""
    for job in lock_jobs(conn, JOBS.c.id == job_id):
        return job
    raise UsageError(f"there is no job {job_id}: `weavegen status` lists them")


def set_state(
    conn: sa.Connection, state: JobState, job_id: int | None = None, *, reason: str | None = None
) -> list[int]:
    """Pause, drain or resume a job, or all jobs that have open traces. Returns the jobs that changed.

    `reason`: why weavegen does it; None: a person does.

    When a trace begins its next tick, the time that its job was paused is added to its remaining time.
    """
    if job_id is not None:
        jobs = [lock_job(conn, job_id)]
    elif state == JobState.ACTIVE:
        jobs = list(lock_jobs(conn, JOBS.c.state != state))
    else:
        working = sa.exists().where(TRACES.c.job_id == JOBS.c.id, TRACES.c.status.in_(OPEN))
        jobs = list(lock_jobs(conn, working))
    changed = [job for job in jobs if job.state != state]
    ids = [job.id for job in changed]
    resumed = [job.id for job in changed if job.state == JobState.PAUSED]
    sql.run(conn, "store/send_resumed_steps", jobs=resumed)
    sql.run(conn, "store/set_job_state", state=str(state), jobs=ids, reason=reason)
    return ids


def require_scores(conn: sa.Connection, trace_id: int) -> None:
    """Raise Unserved if MAX_FAILED_SCORES steps of a trace's job that score have failed and none is done.

    In the transaction in which one of them fails, which is thereby undone.
    """
    conn.execute(sa.select(sa.func.pg_advisory_xact_lock(SCORES_LOCK)))
    if sql.run(conn, "store/scores_nothing", trace=trace_id, failed=MAX_FAILED_SCORES).scalar_one():
        raise Unserved("nothing can be scored")


def pause_unscored(conn: sa.Connection, trace_id: int, reason: str) -> None:
    """Pause a trace's job because nothing can be scored."""
    job_id = job_of(conn, trace_id)
    text = f"{MAX_FAILED_SCORES} steps could not score, and none could: {reason}; `weavegen resume {job_id}` goes on"
    set_state(conn, JobState.PAUSED, job_id, reason=text)


@dataclass(frozen=True)
class Retuned:
    """The settings of a job after `retune`."""

    revision: int
    settings: dict[str, Any]
    """The settings that differ from the defaults."""
    changed: bool
    """False: the job had these settings before, and no revision was made."""


def retune(conn: sa.Connection, job_id: int, values: dict[str, Any]) -> Retuned:
    """Give a job other settings: a new revision, for all ticks that begin from now on. Raises UsageError.

    `values`: the settings to change, as in `enqueue`. Within `types`, only the named settings change.
    """
    job = lock_job(conn, job_id)
    before, values = renamed(current_settings(conn, job_id)), renamed(values, warn=True)
    types = {**before.get("types", {})}
    new_types = values.get("types", {})
    for type, own in new_types.items() if isinstance(new_types, dict) else ():
        types[type] = {**types.get(type, {}), **own} if isinstance(own, dict) else own
    after = before | values | ({"types": types} if isinstance(new_types, dict) and types else {})
    settings(after)
    if after == before:
        return Retuned(job.revision, before, changed=False)
    revision = job.revision + 1
    conn.execute(sa.insert(JOB_SETTINGS).values(job_id=job_id, revision=revision, settings=after))
    conn.execute(sa.update(JOBS).where(JOBS.c.id == job_id).values(revision=revision))
    return Retuned(revision, after, changed=True)


def current_settings(conn: sa.Connection, job_id: int) -> dict[str, Any]:
    """The newest revision of a job's settings: those that differ from the defaults."""
    return dict(sql.run(conn, "store/current_settings", job=job_id).scalar_one())


def retry(
    conn: sa.Connection,
    chosen: Sequence[int],
    statuses: Sequence[TraceStatus],
    *,
    job_id: int | None = None,
    new_seed: bool = False,
    dry_run: bool = False,
) -> tuple[int, list[int]]:
    """Queue traces that are over once more, as new traces of their jobs. The old traces stay as they are.

    `chosen` is narrowed to traces with one of `statuses`, and of job `job_id`. Traces whose retry is open or has
    ended are not retried again. Returns how many traces match, and the ids that are retried, or would be retried.
    """
    matching = [TRACES.c.id == sa.any_(sa.literal(chosen, ARRAY(sa.BigInteger))), TRACES.c.status.in_(statuses)]
    if job_id is not None:
        matching.append(TRACES.c.job_id == job_id)
    lock_jobs(conn, JOBS.c.id.in_(sa.select(TRACES.c.job_id).where(*matching)))
    matches = list(conn.execute(sa.select(TRACES.c.id).where(*matching)).scalars())
    ids = list(sql.run(conn, "store/retriable_traces", chosen=matches).scalars()) if matches else []
    if dry_run or not ids:
        return len(matches), ids
    rows = [row._asdict() for row in sql.run(conn, "store/retries", ids=ids)]
    for row in rows if new_seed else ():
        row["seed"] = derive_seed(row["seed"], "retry", row["number"])
    conn.execute(sa.insert(TRACES), rows)
    return len(matches), ids


def not_active(conn: sa.Connection, trace_ids: Sequence[int]) -> dict[int, str]:
    """The states of the jobs of these traces that are paused or draining, by job."""
    rows = sql.run(conn, "store/not_active_jobs", traces=list(trace_ids))
    return {row.id: row.state for row in rows}


def open_traces(conn: sa.Connection, job_id: int) -> dict[str, int]:
    """How many traces of a job are queued, and how many are running."""
    query = sa.select(TRACES.c.status, sa.func.count().label("number")).group_by(TRACES.c.status)
    rows = conn.execute(query.where(TRACES.c.job_id == job_id, TRACES.c.status.in_(OPEN)))
    return {row.status: row.number for row in rows}
