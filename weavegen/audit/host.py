"""Checks of this host: processes, sockets, logs and workspaces of traces, and workers that hold leases."""

import socket
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from weavegen import sql
from weavegen.audit.check import Check, Scan, Scope
from weavegen.config import Config
from weavegen.sandbox import environment as client
from weavegen.services import fleet, processes

BOOT_MODULE = "weavegen.box.boot"
"""The command line of every environment process contains it."""
START_TOLERANCE = 5
"""Seconds by which a process may seem to have started after it claimed a step."""

CHECKS = (
    Check("host-processes", "this host runs no environment of a trace that has ended or is unknown", "host"),
    Check(
        "host-files",
        "this host has no socket, log or workspace of a trace that has ended or is unknown",
        "host",
        waits=True,
    ),
    Check("host-workers", "no dead process of this host holds a lease", "host"),
)


@dataclass(frozen=True)
class Host:
    """What traces have on this host. Read before the database, so that the database knows every trace in it."""

    lease: float
    """Length of a lease in seconds."""
    paused: bool
    """Nothing can advance: the database is embedded, and no sweeper runs."""
    processes: dict[int, set[int]]
    """Process ids by trace."""
    files: dict[int, list[str]]
    """Paths by trace."""


def look(config: Config) -> Host:
    """Find the environments' processes, sockets, logs and workspaces of this installation."""
    paused = config.database_url is None and processes.find(config, fleet.BEAT) is None
    return Host(config.lease, paused, find_processes(config), client.find_files(config))


def find_processes(config: Config) -> dict[int, set[int]]:
    """Ids of environment processes by trace, including those whose state file was lost."""
    by_trace: defaultdict[int, set[int]] = defaultdict(set)
    for environment in client.running(config):
        by_trace[environment.trace_id].add(environment.handle.pid)
    parents = {config.workspaces, config.workspaces.resolve()}
    for process in psutil.process_iter(["pid", "cmdline"]):
        command = process.info["cmdline"] or []
        if any(BOOT_MODULE in word for word in command):
            for path in map(Path, (*command, folder_of(process))):
                if path.parent in parents and path.name.isdecimal():
                    by_trace[int(path.name)].add(process.info["pid"])
    return dict(by_trace)


def folder_of(process: psutil.Process) -> str:
    """Current folder of a process; empty if the process has ended or if the path is longer than Linux reports."""
    try:
        return str(process.cwd())
    except (psutil.Error, OSError):
        return ""


def lives(worker: str, claimed: float) -> bool:
    """Whether the process HOST:PID of this host is still the one that claimed a step, at `claimed` (epoch)."""
    try:
        started = psutil.Process(int(worker.rpartition(":")[2])).create_time()
    except (psutil.NoSuchProcess, ValueError):
        return False
    return bool(started < claimed + START_TOLERANCE)


def check_leftovers(scan: Scan, host: Host) -> None:
    """Find processes and files of traces that have ended or are unknown."""
    scan.outcomes["host-processes"].looked_at = sum(map(len, host.processes.values()))
    scan.outcomes["host-files"].looked_at = sum(map(len, host.files.values()))
    traces = sorted(host.processes.keys() | host.files.keys())
    states = {row.id: row.state for row in scan.rows(sql.text("audit/host-traces"), ids=traces)}
    unknown = "there is no such trace" if scan.scope == Scope() else None
    for trace in traces:
        state = states.get(trace, unknown)
        if state is None:
            continue
        for pid in sorted(host.processes.get(trace, ())):
            scan.add("host-processes", trace, f"process {pid}", f"it runs, but {state}")
        for path in host.files.get(trace, ()):
            scan.add("host-files", trace, path, state)


def check_workers(scan: Scan, host: Host) -> None:
    """Find leases of dead processes."""
    # The lease of a worker that died a moment ago has not expired yet: that is not damage.
    tolerated = max(scan.grace, host.lease)
    for row in scan.rows(sql.text("audit/host-leases"), host=f"{socket.gethostname()}:"):
        scan.outcomes["host-workers"].looked_at += 1
        left = row.seconds_left
        if left is not None and left > tolerated and not lives(row.worker, row.claimed):
            problem = f"the dead process {row.worker} holds it for another {left:.0f} s"
            scan.add("host-workers", row.trace_id, f"step {row.id}", problem)
