"""What traces have on this host: processes, sockets, logs, workspaces, and workers that hold leases."""

import socket
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from weavegen.audit.check import Check
from weavegen.audit.reading import Audit, Scope
from weavegen.config import Config
from weavegen.sandbox import environment as client
from weavegen.services import fleet, processes

BOOT = "weavegen.box.boot"
"""In the command line of every environment process."""

CHECKS = (
    Check("host-processes", "no environment lives on this host for a trace that is over or unknown", "host"),
    Check(
        "host-files",
        "no socket, log or workspace is left here by a trace that is over or unknown",
        "host",
        waits=True,
    ),
    Check("host-workers", "no dead process of this host holds a lease", "host"),
)


@dataclass(frozen=True)
class Host:
    """What traces have on this host, by trace. Looked at before the database is, so all of it is known there."""

    lease: float
    """Seconds."""
    paused: bool
    """Nobody can be at work: the database is embedded, and no sweeper runs."""
    processes: dict[int, set[int]]
    files: dict[int, list[str]]


def look(config: Config) -> Host:
    """The environments' processes, sockets, logs and workspaces of this installation."""
    living: defaultdict[int, set[int]] = defaultdict(set)
    for environment in client.running(config):
        living[environment.trace_id].add(environment.pid)
    above = {config.workspaces, config.workspaces.resolve()}
    for process in psutil.process_iter(["pid", "cmdline", "cwd"]):
        command = process.info["cmdline"] or []
        if any(BOOT in word for word in command):  # also one whose state was lost
            for path in map(Path, (*command, process.info["cwd"] or "")):
                if path.parent in above and path.name.isdecimal():
                    living[int(path.name)].add(process.info["pid"])
    files: defaultdict[int, list[str]] = defaultdict(list)
    for folder, pattern in (
        (config.runtime, "env-*"),
        (config.logs, "environment-*.log"),
        (config.workspaces, "*"),
    ):
        for path in sorted(folder.glob(pattern)):
            if (number := path.stem.rpartition("-")[2]).isdecimal():
                files[int(number)].append(str(path))
    paused = config.database_url is None and processes.find(config, fleet.BEAT) is None
    return Host(config.lease, paused, dict(living), dict(files))


def lives(worker: str, claimed: float) -> bool:
    """Whether the process HOST:PID of this host still is the one that took a step, seconds since the epoch."""
    try:
        return bool(psutil.Process(int(worker.rpartition(":")[2])).create_time() < claimed + 5)
    except (psutil.NoSuchProcess, ValueError):
        return False


def compare(audit: Audit, host: Host) -> None:
    """What is on this host against what the traces may have there."""
    here = sorted(host.processes.keys() | host.files.keys())
    states = {
        row.id: row.state
        for row in audit.rows(
            """
            select t.id, case when t.status <> 'running'
                and coalesce(t.finished_at < now() - make_interval(secs => :grace), true)
              then 'its trace is ' || t.status end as state
            from traces t where {scope} and t.id = any(:ids)
            """,
            ids=here,
        )
    }
    everything = audit.scope == Scope()
    audit.outcomes["host-processes"].looked_at = sum(map(len, host.processes.values()))
    audit.outcomes["host-files"].looked_at = sum(map(len, host.files.values()))
    for trace in here:
        state = states.get(trace, "there is no such trace" if everything else None)
        if state is None:
            continue
        for pid in sorted(host.processes.get(trace, ())):
            audit.found("host-processes", trace, f"process {pid}", f"it runs, and {state}")
        for path in host.files.get(trace, ()):
            audit.found("host-files", trace, path, state)
    held = audit.rows(
        """
        select s.trace_id, s.id, s.worker, extract(epoch from s.claimed_at)::double precision as claimed,
          extract(epoch from s.lease_until - now())::double precision as "left"
        from steps s join traces t on t.id = s.trace_id
        where {scope} and s.status = 'running'
          and s.kind <> all(:waits) and starts_with(s.worker, :here)
        """,
        here=f"{socket.gethostname()}:",
    )
    for row in held:
        audit.outcomes["host-workers"].looked_at += 1
        # The lease of a worker that died a moment ago has still to run out: that is no damage.
        if row.left is not None and row.left > max(audit.grace, host.lease) and not lives(row.worker, row.claimed):
            problem = f"{row.worker}, which no longer lives, holds it for another {row.left:.0f} s"
            audit.found("host-workers", row.trace_id, f"step {row.id}", problem)
