"""The register of the processes that weavegen started on this machine: start, find again, stop."""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import psutil  # type: ignore[import-untyped]

from weavegen import folders
from weavegen.config import Config
from weavegen.errors import UsageError

log = logging.getLogger(__name__)

CLOCK_SLACK = 5.0
"""Seconds by which a process's time of birth may seem to move when the machine's clock is corrected."""

GRACE = 10.0
"""Seconds between asking a process to end and killing it."""

START_TIMEOUT = 90.0
"""Seconds for a part, or for all the workers together; the first start on a slow disk compiles every module."""

LOOPBACK = "127.0.0.1"

_children: dict[int, subprocess.Popen[bytes]] = {}
# Children of this very process, kept so that the dead can be told from the living (a dead child that
# nobody has waited for still has its pid).


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the register."""

    name: str
    pid: int
    created: float
    """When the process was born, seconds since the epoch: with the pid, it tells a reused pid apart."""
    command: list[str]
    url: str | None = None
    log: str | None = None
    temporary: bool = False
    """Started for the time of one command; the last command to use it stops it."""


class Account(msgspec.Struct, frozen=True):
    """A system user to run a child as."""

    uid: int
    gid: int


def register_path(config: Config) -> Path:
    return config.home / "services.json"


def registered(config: Config) -> dict[str, Service]:
    """The whole register, the dead included."""
    path = register_path(config)
    try:
        services = msgspec.json.decode(path.read_bytes(), type=list[Service])
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError:
        raise UsageError(f"{path} can't be read: end what it names, then remove it") from None
    return {service.name: service for service in services}


def record(config: Config, service: Service) -> None:
    """Adds to the register, in place of an older one of that name."""
    _change(config, lambda services: services.update({service.name: service}))


def forget(config: Config, service: Service) -> None:
    """Takes out of the register, unless the name has gone to a newer process."""

    def change(services: dict[str, Service]) -> None:
        if services.get(service.name) == service:
            del services[service.name]

    _change(config, change)


def _change(config: Config, change: Callable[[dict[str, Service]], None]) -> None:
    path = register_path(config)
    with folders.locked(path.with_suffix(".lock")):
        services = registered(config)
        change(services)
        draft = path.with_suffix(".new")
        draft.touch(mode=0o600)
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(list(services.values())), indent=2))
        draft.replace(path)


def describe(
    name: str, pid: int, command: Sequence[str], *, url: str | None = None, log: Path | None = None
) -> Service | None:
    """A line for a process that runs, however it was started; None if it has gone."""
    try:
        created = psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None
    return Service(
        name=name, pid=pid, created=created, command=list(command), url=url, log=str(log) if log else None
    )


def alive(service: Service) -> bool:
    """Whether it is that very process, not one that was given its pid later, and not a zombie."""
    return _process(service) is not None


def find(config: Config, name: str) -> Service | None:
    """The registered service of that name, if it is alive."""
    service = registered(config).get(name)
    return service if service is not None and alive(service) else None


def start(
    config: Config,
    name: str,
    command: Sequence[str],
    *,
    url: str | None = None,
    environ: Mapping[str, str] | None = None,
    account: Account | None = None,
    temporary: bool = False,
    ready: Callable[[], bool] | None = None,
    timeout: float = 60.0,
) -> Service:
    """Starts a process that outlives this one, in a session of its own, and registers it.

    Its output is appended to `<logs>/<name>.log`. With `ready` it is waited for, and ended where that fails.
    """
    folders.prepare(config)
    log_path = config.logs / f"{name}.log"
    with log_path.open("ab") as output:
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=config.home,
            env=None if environ is None else dict(environ),
            start_new_session=True,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    _children[child.pid] = child
    service = describe(name, child.pid, command, url=url, log=log_path)
    if service is None:
        raise UsageError(failure(name, log_path))
    service = msgspec.structs.replace(service, temporary=temporary)
    record(config, service)
    if ready is not None:
        try:
            wait_until(service, ready, timeout)
        except BaseException:
            stop(config, [service])
            raise
    log.info("started %s (pid %d)", name, child.pid)
    return service


def wait_until(service: Service, ready: Callable[[], bool], timeout: float) -> None:
    """Waits until `ready()`. Raises UsageError if the process ends first, or is not ready in time."""
    deadline = time.monotonic() + timeout
    path = Path(service.log) if service.log else None
    while not ready():
        if not alive(service):
            raise UsageError(failure(service.name, path))
        if time.monotonic() > deadline:
            raise UsageError(f"{service.name} did not answer within {timeout:.0f} seconds: see {service.log}")
        time.sleep(0.02)


def failure(name: str, log_path: Path | None) -> str:
    """One line that says that a service ended, and the last that it said."""
    lines: list[str] = []
    if log_path is not None:
        with contextlib.suppress(OSError):
            lines = log_path.read_text(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
    return f"{name} ended as soon as it was started: {last[:300]} (see {log_path})"


def stop(
    config: Config, services: Iterable[Service], *, grace: float = GRACE, ask: signal.Signals = signal.SIGTERM
) -> list[Service]:
    """Ends services with all their descendants, together, and forgets them. Returns those that were alive."""
    services = list(services)
    parents = {service.name: process for service in services if (process := _process(service)) is not None}
    families = [process for parent in parents.values() for process in _family(parent)]
    for parent in parents.values():
        with contextlib.suppress(psutil.NoSuchProcess):
            parent.send_signal(ask)
    deaf = wait(parents.values(), grace)
    # Born since the first look; a process that has ended takes no signal, even if its pid has a new owner.
    families += [process for parent in deaf for process in _family(parent)]
    for process in families:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    wait(families, GRACE)
    for service in services:
        forget(config, service)
    for name in parents:
        log.info("stopped %s", name)
    return [service for service in services if service.name in parents]


def free_port(wanted: int | None) -> int:
    """A port that nothing listens on, or `wanted`. Raises UsageError where that is taken."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, wanted or 0))
        except (OSError, OverflowError):
            raise UsageError(f"port {wanted} can't be used: give another one to the model") from None
        return int(listener.getsockname()[1])


def _family(parent: psutil.Process) -> list[psutil.Process]:
    try:
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def wait(running: Iterable[psutil.Process], timeout: float) -> list[psutil.Process]:
    """Waits for their end. Returns those that still run."""
    running = list(running)
    deadline = time.monotonic() + timeout
    while (running := [process for process in running if _runs(process)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return running


def _runs(process: psutil.Process) -> bool:
    _reap(process.pid)
    try:
        # In a container whose first process waits for nobody, the dead stay on as zombies.
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _process(service: Service) -> psutil.Process | None:
    try:
        process = psutil.Process(service.pid)
        same = abs(process.create_time() - service.created) < CLOCK_SLACK
    except psutil.NoSuchProcess:
        return None
    return process if same and _runs(process) else None


def _reap(pid: int) -> None:
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        _children.pop(pid, None)


def environment(config: Config) -> dict[str, str]:
    """Environment variables with which a child reads the same configuration from its environment."""
    settings = {
        "WEAVEGEN_HOME": str(config.home),
        "DATABASE_URL": config.database_url,
        "CELERY_BROKER_URL": config.broker_url,
        "OPENAI_BASE_URL": config.model_url,
        "OPENAI_API_KEY": config.api_key,
        "WEAVEGEN_HOST": config.host,
        "WEAVEGEN_MAX_ACTIVE": str(config.max_active),
        "WEAVEGEN_LEASE": str(config.lease),
        "WEAVEGEN_DRAIN": str(config.drain),
        "WEAVEGEN_SANDBOX": config.sandbox,
        "WEAVEGEN_DISCORD_TOKEN": config.discord_token,
        "WEAVEGEN_DISCORD_URL": config.discord_url,
    }
    environ = {name: value for name, value in os.environ.items() if name not in settings}
    return environ | {name: value for name, value in settings.items() if value is not None}
