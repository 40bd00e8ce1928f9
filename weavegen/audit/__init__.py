"""The auditor: reads what was written and proves that nothing was lost or doubled. See docs/audit.md.

Each check has a name. What SQL can say is one statement for all traces; what only Python can say (render, parse,
compile, labels, rewards) is read trace by trace through a server-side cursor, so memory grows with the longest
trace's number of blocks and not with the corpus. All of it sees one snapshot: an advance is one transaction, so
workers that run meanwhile are never seen half way.

A tick is live unless its blocks were dropped: where a caller's tick starts over, the ticks of the subagents that
it had called stay, finished, without blocks, and their steps are no longer anybody's.
"""

import sqlalchemy as sa

from weavegen.audit import host
from weavegen.audit.checks import prove
from weavegen.audit.reading import Scope
from weavegen.audit.report import SHOWN, Finding, Outcome, Report
from weavegen.config import Config

__all__ = ["SHOWN", "Finding", "Outcome", "Report", "Scope", "audit"]


def audit(conn: sa.Connection, scope: Scope, grace: float, config: Config | None = None) -> Report:
    """Audit a scope in one transaction that only reads, on one snapshot; with `config`, this host too.

    Raises UsageError where there is no such job or trace.
    """
    seen = None if config is None else host.look(config)
    conn = conn.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    with conn.begin():
        conn.execute(sa.text("set local work_mem = '64MB'"))
        return prove(conn, scope, grace, seen)
