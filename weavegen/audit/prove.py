"""All checks in order, and the pass over them, which is the entry point."""

from weavegen import sql
from weavegen.audit import host, texts
from weavegen.audit.check import FOLDER, Outcome, Report, Scan, Scope, sql_check
from weavegen.config import Config
from weavegen.database import Connection
from weavegen.errors import UsageError

IN_SQL = [sql_check(file.stem) for file in sorted(FOLDER.glob("*.sql"))]
CHECKS = (
    *(check for check in IN_SQL if not check.remark),
    *texts.CHECKS,
    *host.CHECKS,
    *(check for check in IN_SQL if check.remark),
)


def audit(conn: Connection, scope: Scope, grace: float, config: Config | None = None) -> Report:
    """Audit a scope in one read-only transaction on one snapshot; with `config` also this host.

    `grace`: seconds that work in progress may take before it counts as stuck. Raises UsageError if the scope
    names no existing job or trace.
    """
    seen = None if config is None else host.look(config)
    with conn.transaction():
        sql.run(conn, "audit/snapshot")
        sql.run(conn, "store/more_memory")
        return prove(conn, scope, grace, seen)


def prove(conn: Connection, scope: Scope, grace: float, seen: host.Host | None) -> Report:
    """Run all checks; those of this host only if `seen` says what is on it.

    The report is consistent if the connection's transaction sees one snapshot. Raises UsageError if the scope
    names no existing job or trace.
    """
    scan = Scan(conn, scope, grace)
    paused = seen is not None and seen.paused
    [row] = scan.rows(sql.text("audit/counts"), at_once=True)
    counts: dict[str, int] = {name.replace("_", " "): count for name, count in row._asdict().items()}
    if scope != Scope() and not counts["traces"]:
        what = f"trace {scope.trace}" if scope.trace is not None else f"job {scope.job}"
        raise UsageError(f"there is no {what}: `weavegen status` lists the jobs, with a job's number its traces")
    for check in CHECKS:
        if check.subject == "host" and seen is None:
            continue
        remark = check.remark or (check.waits and paused)
        scan.outcomes[check.name] = Outcome(check.name, check.proves, remark, counts.get(check.subject, 0))
        if check.sql:
            for trace, place, problem in scan.rows(check.sql):
                scan.add(check.name, trace, place, problem)
    for trace in scan.rows(sql.text("audit/traces")):
        texts.TraceCheck(scan, trace).run()
    if seen is not None:
        host.check_leftovers(scan, seen)
        host.check_workers(scan, seen)
    return Report(list(scan.outcomes.values()), counts, paused)
