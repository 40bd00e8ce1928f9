"""The audit reads the corpus and proves that nothing was lost or doubled. See docs/audit.md.

Each check has a name. What SQL can express is a file in checks/, one query for all traces. The rest (rendering,
parsing and compiling blocks, labels, rewards) is Python in texts.py, which reads trace by trace through a
server-side cursor, so that memory grows with the longest trace's number of blocks and not with the corpus. host.py
compares processes and files of this host with the database.

All of it sees one snapshot. An advance of a trace is one transaction, so the audit never sees half of one while
workers run.
"""

import sqlalchemy as sa

from weavegen.audit import host
from weavegen.audit.prove import prove
from weavegen.audit.report import MAX_FINDINGS, Finding, Outcome, Report
from weavegen.audit.scan import Scope
from weavegen.config import Config

__all__ = ["MAX_FINDINGS", "Finding", "Outcome", "Report", "Scope", "audit"]


def audit(conn: sa.Connection, scope: Scope, grace: float, config: Config | None = None) -> Report:
    """Audit a scope in one read-only transaction on one snapshot; with `config` also this host.

    `grace`: seconds that work in progress may take before it counts as stuck. Raises UsageError where the scope
    names no existing job or trace.
    """
    seen = None if config is None else host.look(config)
    conn = conn.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    with conn.begin():
        conn.execute(sa.text("set local work_mem = '64MB'"))
        return prove(conn, scope, grace, seen)
