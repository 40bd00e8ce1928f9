"""The table of all checks, and the one pass over it."""

import sqlalchemy as sa

from weavegen.audit import blocks, candidates, host, journal, texts, traces
from weavegen.audit.check import COUNTS
from weavegen.audit.reading import Audit, Scope
from weavegen.audit.report import Outcome, Report
from weavegen.errors import UsageError

CHECKS = (
    *blocks.CHECKS,
    *journal.CHECKS,
    *candidates.CHECKS,
    *traces.CHECKS,
    *texts.CHECKS,
    *host.CHECKS,
    *traces.REMARKS,
)


def prove(conn: sa.Connection, scope: Scope, grace: float, seen: host.Host | None) -> Report:
    """All checks, on one snapshot if the connection's transaction is one; `seen`: what is on this host, if wanted.

    Raises UsageError where there is no such job or trace.
    """
    audit = Audit(conn, scope, grace)
    paused = seen is not None and seen.paused
    counts = {subject: next(audit.rows(sql))[0] for subject, sql in COUNTS.items()}
    if scope != Scope() and not counts["traces"]:
        what = f"trace {scope.trace}" if scope.trace is not None else f"job {scope.job}"
        raise UsageError(f"there is no {what}: `weavegen status` lists the jobs, with a job's number its traces")
    for check in CHECKS:
        if check.subject == "host" and seen is None:
            continue
        looked_at = 0 if check.subject == "host" else counts[check.subject]
        remark = check.remark or (check.waits and paused)
        audit.outcomes[check.name] = Outcome(check.name, check.proves, remark, looked_at)
        if check.sql:
            for trace, place, problem in audit.rows(check.sql):
                audit.found(check.name, trace, place, problem)
    texts.read(audit)
    if seen is not None:
        host.compare(audit, seen)
    return Report(list(audit.outcomes.values()), counts, paused)
