"""Jobs in Postgres: traces enqueued in one transaction; paused, retuned, retried."""

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from weavegen import sql
from weavegen.database import Connection
from weavegen.errors import Unserved, required
from weavegen.kernel.harbor import HarborTask
from weavegen.kernel.packages import Packages
from weavegen.kernel.seeds import derive_seed
from weavegen.kernel.settings import renamed, settings
from weavegen.kernel.template import Template
from weavegen.store.releases import batches
from weavegen.store.states import JobState, TraceStatus
from weavegen.store.traces import job_of

log = logging.getLogger(__name__)
MAX_FAILED_SCORES = 3
"""A job without any score is paused after this many failed scores. The last one is tried again after `resume`."""
TRACES_PER_STATEMENT = 10_000
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
    conn: Connection,
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
        values["packages_id"] = content_id(conn, "packages", packages.sha256, **msgspec.structs.asdict(packages))
    if files is not None:
        digest = hashlib.sha256(files).hexdigest()
        values["starting_files_id"] = content_id(conn, "starting_files", digest, archive=files)
    if template is not None:
        values["template_id"] = content_id(conn, "templates", template.sha256, texts=template)
    values["asked_model"] = values["model"]
    job_id = insert_job(conn, values)
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
    insert_traces(conn, rows)
    return job_id


JOB = dict.fromkeys(
    ("evaluator", "student", "template_id", "packages_id", "starting_files_id", "mcp_servers", "enqueued_by")
) | {"paused_seconds": 0.0, "revision": 0}
"""Columns of jobs that may be left out."""


def insert_job(conn: Connection, values: dict[str, Any]) -> int:
    """Write a job with these columns. Returns its id."""
    return int(sql.run(conn, "store/insert_job", **JOB | values).scalar_one())


def insert_traces(conn: Connection, rows: Iterable[dict[str, Any]]) -> None:
    """Write queued traces with these columns, in their order."""
    for part in batches(rows, TRACES_PER_STATEMENT):
        sql.run(conn, "store/insert_traces", traces=part)


def bootstrap_ids(conn: Connection, orders: Sequence[Order]) -> dict[str, int]:
    """Ids of bootstraps by source. New ones are written."""
    sources = {order.source: order.name for order in orders}
    hashes = {hashlib.sha256(source.encode()).hexdigest(): source for source in sources}
    rows = [{"sha256": digest, "name": sources[source], "source": source} for digest, source in hashes.items()]
    return {hashes[digest]: id for digest, id in content_ids(conn, "bootstraps", rows).items()}


def content_ids(conn: Connection, table: str, rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Ids of contents in a table, by hash. New ones are written by the query store/save_TABLE."""
    sql.run_each(conn, f"store/save_{table}", rows)
    known = conn.execute(sql.load("store/content_ids", contents=table), {"hashes": [row["sha256"] for row in rows]})
    return {row.sha256: row.id for row in known}


def content_id(conn: Connection, table: str, digest: str, **values: Any) -> int:
    """Id of one content."""
    return content_ids(conn, table, [{"sha256": digest, **values}])[digest]


def harbor_task_id(conn: Connection, task: HarborTask, files: bytes) -> int:
    """Id of a Harbor task. A new one is written."""
    digest = hashlib.sha256(msgspec.json.encode(task) + files).hexdigest()
    values = {"name": task.name, "task": task, "metadata": task.metadata, "files": files}
    return content_id(conn, "harbor_tasks", digest, **values)


def record_template(conn: Connection, job_id: int, template: Template) -> Template:
    """Record the template of a job's prompts. Returns the recorded one: the first stays."""
    recorded = content_id(conn, "templates", template.sha256, texts=template)
    sql.run(conn, "store/record_template", job=job_id, template=recorded)
    return msgspec.convert(sql.run(conn, "store/template_of_job", job=job_id).scalar_one(), Template)


def lock_job(conn: Connection, job_id: int) -> Any:
    """A job, locked against other commands: a row of lock_jobs.sql. Raises UsageError if there is no such job."""
    job = sql.run(conn, "store/lock_jobs", jobs=[job_id]).one_or_none()
    return required(job, f"there is no job {job_id}: `weavegen status` lists them")


def set_state(conn: Connection, state: JobState, job_id: int | None = None, *, reason: str | None = None) -> list[int]:
    """Pause, drain or resume a job, or all jobs that have open traces. Returns the jobs that changed.

    `reason`: why weavegen does it; None: a person does.

    When a trace begins its next tick, the time that its job was paused is added to its remaining time.
    """
    if job_id is not None:
        jobs: Sequence[Any] = [lock_job(conn, job_id)]
    else:
        concerned = sql.run(conn, "store/jobs_to_change", state=state).scalars()
        jobs = sql.run(conn, "store/lock_jobs", jobs=concerned).all()
    changed = [job for job in jobs if job.state != state]
    ids = [job.id for job in changed]
    resumed = [job.id for job in changed if job.state == JobState.PAUSED]
    sql.run(conn, "store/send_resumed_steps", jobs=resumed)
    sql.run(conn, "store/set_job_state", state=state, jobs=ids, reason=reason)
    return ids


def require_scores(conn: Connection, trace_id: int) -> None:
    """Raise Unserved, to undo this failure, if MAX_FAILED_SCORES scoring steps of the job failed and none succeeded."""
    sql.run(conn, "store/advisory_lock", key=SCORES_LOCK)
    if sql.run(conn, "store/scores_nothing", trace=trace_id, failed=MAX_FAILED_SCORES).scalar_one():
        raise Unserved("nothing can be scored")


def pause_unscored(conn: Connection, trace_id: int, reason: str) -> None:
    """Pause a trace's job because nothing can be scored."""
    job_id = job_of(conn, trace_id)
    text = f"{MAX_FAILED_SCORES} scoring steps failed, and none succeeded: {reason}; `weavegen resume {job_id}` goes on"
    set_state(conn, JobState.PAUSED, job_id, reason=text)


@dataclass(frozen=True)
class Retuned:
    """The settings of a job after `retune`."""

    revision: int
    settings: dict[str, Any]
    """The settings that differ from the defaults."""
    changed: bool
    """False: the job had these settings before, and no revision was made."""


def retune(conn: Connection, job_id: int, values: dict[str, Any]) -> Retuned:
    """Give a job other settings: a new revision, for all ticks that begin from now on. Raises UsageError.

    `values`: the settings to change, as in `enqueue`.
    """
    job = lock_job(conn, job_id)
    current: dict[str, Any] = sql.run(conn, "store/current_settings", job=job_id).scalar_one()
    before, values = renamed(current), renamed(values, warn=True)
    settings(after := merged(before, values))
    if after == before:
        return Retuned(job.revision, before, changed=False)
    revision = job.revision + 1
    sql.run(conn, "store/revise_settings", job=job_id, revision=revision, settings=after)
    for other in sql.run(conn, "store/jobs_of_delegates", job=job_id).scalars():
        log.warning("job %d works for this job and keeps its settings: `weavegen retune %d`", other, other)
    return Retuned(revision, after, changed=True)


def merged(settings: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under others, which replace them and may be wrong. Those of single types and agents are merged, too."""
    both = {**settings, **above}
    for kind in ("types", "delegates"):
        lower, upper = settings.get(kind, {}), above.get(kind)
        if isinstance(upper, dict):
            owns = {owner: lower.get(owner, {}) | own if isinstance(own, dict) else own for owner, own in upper.items()}
            both[kind] = lower | owns
    return both


def retry(
    conn: Connection,
    chosen: Sequence[int],
    statuses: Sequence[TraceStatus],
    *,
    job_id: int | None = None,
    new_seed: bool = False,
    dry_run: bool = False,
) -> tuple[int, list[int]]:
    """Queue ended traces again, as new traces of their jobs. The old traces stay as they are.

    `chosen` is narrowed to traces with one of `statuses`, and of job `job_id`. Traces whose retry is open or has
    ended are not retried again. Returns how many traces match, and the ids that are retried, or would be retried.
    """
    matching = {"chosen": chosen, "statuses": list(statuses), "job": job_id}
    jobs = {row.job_id for row in sql.run(conn, "store/matching_traces", **matching)}
    sql.run(conn, "store/lock_jobs", jobs=jobs)
    # Again, because another command may have retried some of them before the jobs were locked.
    matches = sql.run(conn, "store/matching_traces", **matching).scalars()
    ids = list(sql.run(conn, "store/retriable_traces", chosen=matches).scalars()) if matches else []
    if dry_run or not ids:
        return len(matches), ids
    rows = [row._asdict() for row in sql.run(conn, "store/retries", ids=ids)]
    for row in rows if new_seed else ():
        row["seed"] = derive_seed(row["seed"], "retry", row["number"])
    insert_traces(conn, rows)
    return len(matches), ids
