"""Starts, finds and stops the processes of weavegen on this machine, and keeps a register of them."""

import contextlib
import importlib.util
import logging
import os
import pwd
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil  # type: ignore[import-untyped]

from weavegen import folders
from weavegen.config import Config
from weavegen.errors import UsageError
from weavegen.sandbox.children import adopt, collect
from weavegen.sandbox.providers import start_time

log = logging.getLogger(__name__)

CLOCK_SLACK_SECONDS = 5.0
"""`created` may seem to change by this much when the machine's clock is corrected."""
GRACE_SECONDS = 10.0
"""Time between the request to end and SIGKILL."""
START_TIMEOUT_SECONDS = 90.0
"""For a service, or for all workers together. The first start on a slow disk compiles every module."""
TAIL_BYTES = 65_536  # of a log, which may be longer than the memory
LOOPBACK = "127.0.0.1"
MARK = "WEAVEGEN_SERVICE_OF"
"""Environment variable by which the services of a home are found, even if its register is gone."""
SUPERVISOR = "supervisor"
"""The service that restarts the others."""


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the register."""

    name: str
    pid: int
    created: float
    """Start time, seconds since the epoch. Versions before 0.2 use it to detect a reused pid."""
    ticks: float | None = None
    """Its `start_time`, which clock changes do not affect; None: a version before 0.2 registered it."""
    command: list[str]
    url: str | None = None
    log: str | None = None
    temporary: bool = False
    """Started for one command. The last command that uses it stops it."""
    restarts: int = 0
    """How often the supervisor has restarted it."""
    failed: str | None = None
    """Why the supervisor does not restart it any more."""


def run_as(account: pwd.struct_passwd | None) -> dict[str, Any]:
    """Return the options of `subprocess` that run a child as a system user; none for the current user."""
    return {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def register_path(config: Config) -> Path:
    return config.home / "services.json"


def registered(config: Config) -> dict[str, Service]:
    """Return the register by name, including services that have ended."""
    path = register_path(config)
    try:
        services = msgspec.json.decode(path.read_bytes(), type=list[Service])
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError:
        raise UsageError(f"{path} is invalid: end the processes in it, then remove it") from None
    return {service.name: service for service in services}


def record(config: Config, service: Service) -> None:
    """Add a service to the register. It replaces one of the same name."""
    with _changing(config) as services:
        services[service.name] = service


def forget(config: Config, service: Service) -> None:
    """Remove a service from the register, unless a newer process has its name."""
    with _changing(config) as services:
        if services.get(service.name) == service:
            del services[service.name]


@contextlib.contextmanager
def _changing(config: Config) -> Iterator[dict[str, Service]]:
    """Yield the register by name, and store the changes that the body makes."""
    path = register_path(config)
    with folders.locked(path.with_suffix(".lock")):
        services = registered(config)
        yield services
        draft = path.with_suffix(".new")
        draft.touch(mode=0o600)
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(list(services.values())), indent=2))
        draft.replace(path)


def log_path(config: Config, name: str) -> Path:
    return config.logs / f"{name}.log"


def record_process(
    config: Config, name: str, pid: int, command: Sequence[str], *, url: str | None, temporary: bool = False
) -> Service | None:
    """Add a running process to the register. Returns None if it has ended."""
    try:
        created, ticks = psutil.Process(pid).create_time(), start_time(pid)
    except psutil.NoSuchProcess:
        return None
    log = str(log_path(config, name))
    service = Service(
        name=name, pid=pid, created=created, ticks=ticks, command=list(command), url=url, log=log, temporary=temporary
    )
    record(config, service)
    return service


def alive(service: Service) -> bool:
    """Whether the service's process runs. A zombie, or another process with its pid, does not count."""
    return _process(service) is not None


def age(service: Service) -> float | None:
    """Return the seconds since the service's process started; None: it does not run."""
    process = _process(service)  # its create_time follows changes of the clock; `created` does not
    return None if process is None else time.time() - process.create_time()


def find(config: Config, name: str) -> Service | None:
    """Return the registered service with this name if it is alive."""
    service = registered(config).get(name)
    return service if service is not None and alive(service) else None


def start(
    config: Config,
    name: str,
    command: Sequence[str],
    *,
    url: str | None = None,
    environ: Mapping[str, str] | None = None,
    account: pwd.struct_passwd | None = None,
    temporary: bool = False,
    ready: Callable[[], bool] | None = None,
    timeout: float = 60.0,
) -> Service:
    """Start a process that outlives this one, in a session of its own, and register it.

    Its output is appended to `<logs>/<name>.log`. With `ready`, wait until `ready()`; if it is not in time, end
    the process and raise UsageError.
    """
    folders.prepare(config)
    with log_path(config, name).open("ab") as output:
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=config.home,
            env=dict(os.environ if environ is None else environ) | {MARK: str(config.home)},
            start_new_session=True,
            **run_as(account),
        )
    adopt(child.pid, child)
    if (service := record_process(config, name, child.pid, command, url=url, temporary=temporary)) is None:
        raise UsageError(failure(name, str(log_path(config, name))))
    if ready is not None:
        try:
            wait_until(service, ready, timeout)
        except BaseException:
            stop(config, [service])
            raise
    log.info("started %s (pid %d)", name, child.pid)
    return service


def wait_until(service: Service, ready: Callable[[], bool], timeout: float) -> None:
    """Wait until `ready()`. Raises UsageError if the process ends first, or is not ready in time."""
    deadline = time.monotonic() + timeout
    while not ready():
        if not alive(service):
            raise UsageError(failure(service.name, service.log))
        if time.monotonic() > deadline:
            raise UsageError(f"{service.name} did not answer within {timeout:.0f} seconds: see {service.log}")
        time.sleep(0.02)


def failure(name: str, log: str | None) -> str:
    """Return an error message with the last line that a service printed before it ended."""
    return f"{name} ended as soon as it was started: {last_line(log)[:300] or 'it printed nothing'} (see {log})"


def last_line(log: str | None) -> str:
    """Return the last line of a log, from its end. Progress bars rewrite theirs, separated by carriage returns."""
    lines: list[str] = []
    with contextlib.suppress(OSError), Path(log or "").open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def stop(
    config: Config, services: Iterable[Service], *, grace: float = GRACE_SECONDS, sig: signal.Signals = signal.SIGTERM
) -> list[Service]:
    """End services with their descendants, and remove them from the register. Returns those that were alive.

    Descendants that are services themselves are spared: the supervisor starts services. The entries are removed
    first, because the supervisor does not restart what is not in the register.
    """
    services, known = list(services), registered(config).values()
    for service in services:
        forget(config, service)
    return end(services, grace=grace, sig=sig, spared=known)


def end(
    services: Iterable[Service],
    *,
    grace: float = GRACE_SECONDS,
    sig: signal.Signals = signal.SIGTERM,
    spared: Iterable[Service] = (),
) -> list[Service]:
    """End services with their descendants, except for those in `spared`. Returns those that were alive."""
    services = list(services)
    others = {service.pid for service in spared} - {service.pid for service in services}
    parents = {service.name: process for service in services if (process := _process(service)) is not None}
    families = [process for parent in parents.values() for process in _family(parent, others)]
    send(parents.values(), sig)
    remaining = wait(parents.values(), grace)
    # Descendants that were started meanwhile. psutil does not signal another process that has reused a pid.
    families += [process for parent in remaining for process in _family(parent, others)]
    send(families, signal.SIGKILL)
    wait(families, GRACE_SECONDS)
    for name in parents:
        log.info("stopped %s", name)
    return [service for service in services if service.name in parents]


def orphans(config: Config) -> list[psutil.Process]:
    """Return the processes of services that are not in this home's register: an earlier home was in the same place.

    Also processes in the session of a server that has ended: vLLM's engine has a title in place of its environment.
    """
    services = registered(config).values()
    running = {service.pid for service in services if alive(service)}
    sessions = {service.pid for service in services if service.url is not None} - running
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            marked = os.getsid(process.pid) in sessions or process.environ().get(MARK) == str(config.home)
            above = [process.pid, *(parent.pid for parent in process.parents())]
            if marked and running.isdisjoint(above) and _runs(process):
                found.append(process)
    return found


def end_orphans(config: Config, grace: float = GRACE_SECONDS) -> None:
    """End the processes that `orphans` returns. `grace`: seconds between SIGTERM and SIGKILL."""
    running = orphans(config)
    send(running, signal.SIGTERM)
    send(wait(running, grace), signal.SIGKILL)


def send(running: Iterable[psutil.Process], sig: signal.Signals) -> None:
    """Send a signal to the processes that still exist."""
    for process in running:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(sig)


def in_wheel(package: str, pattern: str) -> Path | None:
    """Return a file of an installed package, or None. Does not import the package, which may create folders."""
    spec = importlib.util.find_spec(package)
    folders = (spec and spec.submodule_search_locations) or ()
    return next((file for folder in folders for file in Path(folder).glob(pattern) if file.is_file()), None)


def free_port(wanted: int | None) -> int:
    """Return a port that nothing listens on, or `wanted`. Raises UsageError if that is in use."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, wanted or 0))
        except (OSError, OverflowError):
            raise UsageError(f"port {wanted} can't be used: give the model another port") from None
        return int(listener.getsockname()[1])


def _family(parent: psutil.Process, spared: Collection[int]) -> list[psutil.Process]:
    """Return a process and its descendants, without those in `spared` (pids) and theirs."""
    family = [parent]
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            family += [child for child in process.children() if child.pid not in spared]
    return family


def wait(running: Iterable[psutil.Process], timeout: float) -> list[psutil.Process]:
    """Wait until processes have ended. Returns those that still run after `timeout` seconds."""
    running = list(running)
    deadline = time.monotonic() + timeout
    while (running := [process for process in running if _runs(process)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return running


def _runs(process: psutil.Process) -> bool:
    collect()
    # In a container whose first process does not reap, ended processes stay zombies, which have no start time.
    return start_time(process.pid) is not None and bool(process.is_running())


def _process(service: Service) -> psutil.Process | None:
    try:
        process = psutil.Process(service.pid)
        same = start_time(service.pid) == service.ticks
        if service.ticks is None:
            same = abs(process.create_time() - service.created) < CLOCK_SLACK_SECONDS
    except psutil.NoSuchProcess:
        return None
    return process if same and _runs(process) else None


def environment(config: Config) -> dict[str, str]:
    """Return the environment variables from which a child reads the same configuration."""
    return dict(os.environ) | config.environ()
