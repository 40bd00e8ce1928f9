"""Faults: what is broken in an installation and keeps traces from going on, each with what to do about it."""

import msgspec

from weavegen import sql
from weavegen.config import Config
from weavegen.database import Connection
from weavegen.services import pool_members, processes
from weavegen.store import servers, workers
from weavegen.text import duration

RESTARTED_SECONDS = 60.0
"""A service that was restarted again counts as a fault for this long."""
UNSERVED_SECONDS = 5.0
"""A queue is unserved if a step has waited in it for this long, and no worker takes steps from it."""
UNSWEPT_SECONDS = 15.0
"""It is a fault if a step or a trace that beat should have had sent has waited for this long."""
UNTRIED_SECONDS = 60.0
"""A step that no worker has taken for this long is a fault."""
MCP_SECONDS = 300.0
"""An MCP server counts as a fault for this long after a call that could not reach it."""
KINDS = ("service", "worker", "queue", "server", "mcp")


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    """One of KINDS."""
    what: str
    """What is broken, in one line."""
    advice: str
    """What to do."""


def faults(conn: Connection, config: Config) -> list[Fault]:
    """All faults seen here, of this machine's services, workers, queues and model servers. Ends the transaction."""
    conn.rollback()
    with conn.transaction():
        found = [*worker_faults(conn), *queue_faults(conn), *server_faults(conn, config), *mcp_faults(conn)]
        beat = processes.find(config, "beat")
        if beat is None or (processes.age(beat) or 0) > UNSWEPT_SECONDS:  # else `up` has just started it
            found += sweep_faults(conn)
    return [*service_faults(config), *found]


def service_faults(config: Config) -> list[Fault]:
    """Services that `up` started here and `down` did not stop, and that have ended or keep ending."""
    services = [service for service in processes.registered(config).values() if not service.temporary]
    dead = [service for service in services if not processes.alive(service)]
    if dead and len(dead) == len(services):
        names = ", ".join(service.name for service in dead)
        return [Fault(kind="service", what=f"nothing runs any more: {names} have ended", advice="run `weavegen up`")]
    supervised = all(service.name != processes.SUPERVISOR for service in dead)
    faults = []
    for service in dead:
        what, advice = f"{service.name} has ended", "run `weavegen up`"
        if service.failed is not None:
            what, advice = service.failed, "fix the cause, then run `weavegen up`"
        elif supervised:
            advice = f"it is restarted, see {service.log}"
        faults.append(Fault(kind="service", what=what, advice=advice))
    for service in services:
        if (age := processes.age(service)) is not None and service.restarts > 1 and age < RESTARTED_SECONDS:
            what = f"{service.name} has ended {service.restarts} times, and was restarted {duration(age)} ago"
            faults.append(Fault(kind="service", what=what, advice=f"see {service.log}"))
    return faults


def worker_faults(conn: Connection) -> list[Fault]:
    """Workers that have fallen silent, or whose host can't do a step; or that no worker runs while traces are open."""
    rows = workers.rows(conn)
    silent = [row for row in rows if row.silent]
    found = []
    for row in silent:
        what = f"the worker {row.node} ({row.process}) has been silent for {duration(row.age)}"
        found.append(Fault(kind="worker", what=what, advice="check its host, and restart it there"))
    for why in sql.run(conn, "store/failing_hosts").scalars():
        advice = "mend that host or stop its workers; the steps wait, or go to other hosts"
        found.append(Fault(kind="worker", what=f"steps can't be done {why}", advice=advice))
    if len(silent) == len(rows) and (count := sql.run(conn, "store/count_open_traces").scalar_one()):
        what = f"no worker runs, and {count:,} {'trace is' if count == 1 else 'traces are'} open"
        found.append(Fault(kind="worker", what=what, advice="start workers with `weavegen up`, or see docs/deploy.md"))
    return found


def queue_faults(conn: Connection) -> list[Fault]:
    """Queues in which steps wait and that no worker serves, or not fast enough."""
    found = []
    for row in sql.run(conn, "store/waiting_queues", silent=workers.SILENT_SECONDS).all():
        steps = f"{row.waiting:,} {'step waits' if row.waiting == 1 else 'steps wait'}"
        if not row.served and row.oldest > UNSERVED_SECONDS:
            what = f"no worker serves the queue {row.queue}: {steps}, the oldest for {duration(row.oldest)}"
            advice = "start workers with `weavegen up`, or see docs/deploy.md"
        elif row.untried is not None and row.untried > UNTRIED_SECONDS:
            what = f"no worker has taken a step from the queue {row.queue} for {duration(row.untried)}: {steps}"
            advice = "start more workers for it (docs/deploy.md)"
        else:
            continue
        found.append(Fault(kind="queue", what=what, advice=advice))
    return found


def sweep_faults(conn: Connection) -> list[Fault]:
    """The fact that beat does not have the workers sweep, though they run."""
    late = sql.run(conn, "store/unswept", silent=workers.SILENT_SECONDS).scalar_one()
    if late is None or late < UNSWEPT_SECONDS:
        return []
    advice = "start beat on one host, and check the broker and that host's clock"
    return [Fault(kind="service", what=f"nothing has sent what waits for {duration(late)}", advice=advice)]


def mcp_faults(conn: Connection) -> list[Fault]:
    """MCP servers that workers can't reach."""
    advice = "start it, or check what the execute workers can reach; new traces wait for it"
    reasons = sql.run(conn, "store/unreachable_mcp_servers", seconds=MCP_SECONDS).scalars()
    return [Fault(kind="mcp", what=why, advice=advice) for why in reasons]


def server_faults(conn: Connection, config: Config) -> list[Fault]:
    """Model servers at which all requests fail."""
    return [
        Fault(kind="server", what=f"the model server {server.url} fails: {server.line}", advice=server.advice)
        for server in servers.failing(conn, pool_members.members(conn, config).keys)
    ]
