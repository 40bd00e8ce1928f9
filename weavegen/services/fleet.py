"""Everything that `weavegen up` brings up on this machine and `weavegen down` ends."""

import importlib.util
import logging
import socket
import sys
import sysconfig
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import psutil  # type: ignore[import-untyped]
from celery import Celery
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

import weavegen
from weavegen import folders
from weavegen.config import Config
from weavegen.errors import UsageError
from weavegen.sandbox import environment as environments
from weavegen.services import flower, model_server, postgres, processes, redis, schema
from weavegen.services.processes import Service
from weavegen.store import steps

log = logging.getLogger(__name__)

BEAT = "beat"
WORKERS = ("model", "lint", "execute")
VIEWER = "viewer"
MODEL_THREADS = 256
"""Steps that wait for the model at a time, mostly one for each active trace. One that waits costs little."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the fleet, as `up` left it."""

    name: str
    started: bool
    """False: it ran already."""
    pid: int | None = None
    """None: it is not ours; its address was given."""
    url: str | None = None
    log: str | None = None


def up(
    config: Config,
    *,
    model_threads: int = MODEL_THREADS,
    lint_processes: int = 2,
    execute_threads: int = 16,
    beat: bool = True,
    model_port: int | None = None,
    sim_options: Sequence[str] = (),
    pages: bool = False,
) -> list[Part]:
    """Brings up what does not run yet, and waits until all of it answers.

    Which model is `config.model`, and none where the configuration names a server. With `pages`, Flower and the
    viewer are started, too; they are not waited for.
    """
    folders.prepare(config)
    with folders.locked(config.home / "up.lock"):
        parts = [_database(config), _broker(config)]
        if config.model != model_server.NONE and config.model_url is None:
            name, started = model_server.start(config, model_port, sim_options, child_environment(config))
            parts.append(_part(config, name, started=started))
        commands = worker_commands(
            config, model_threads=model_threads, lint_processes=lint_processes, execute_threads=execute_threads
        )
        if beat:
            commands[BEAT] = _beat_command(config)
        parts += _workers(config, commands)
        return parts + (_pages(config) if pages else [])


def down(config: Config, drain: float | None = None) -> list[Service]:
    """Ends everything that `up` started. Returns what was running.

    Workers go first, and have `drain` seconds (None: WEAVEGEN_DRAIN) to end what they are at. What they still hold
    then is given back, so that the next `up` goes on at once.
    """
    if not config.home.is_dir():
        return []
    if drain is None:
        drain = config.drain
    with folders.locked(config.home / "up.lock"):
        services = processes.registered(config)
        workers = [services[name] for name in (BEAT, *WORKERS) if name in services]
        begun = environments.running(config)
        told = _drain_path(config)
        told.write_text(str(drain))
        try:
            ended = processes.stop(config, workers, grace=drain)
        finally:
            told.unlink(missing_ok=True)
        begun += environments.running(config)
        for environment in begun:  # they outlive workers by design, but not this
            environment.stop()
        _give_back(config, [environment.trace_id for environment in begun])
        kept = {postgres.NAME, redis.NAME} | {service.name for service in workers}
        ended += processes.stop(config, [service for name, service in services.items() if name not in kept])
        for name, stop in ((redis.NAME, redis.stop), (postgres.NAME, postgres.stop)):
            if stop(config) and name in services:
                ended.append(services[name])
        return ended


def _drain_path(config: Config) -> Path:
    """A file that is there while `down` waits for the workers: for how many seconds."""
    return config.home / "drain"


def drain_seconds(config: Config) -> float:
    """What a worker that is told to end has: as long as `down` waits, if it was `down`; else WEAVEGEN_DRAIN."""
    try:
        return float(_drain_path(config).read_text())
    except (OSError, ValueError):
        return config.drain


def _give_back(config: Config, trace_ids: Sequence[int]) -> None:
    """Says in the database that the workers of this machine, and the environments of these traces, are gone."""
    if config.database_url is None and postgres.find(config) is None:
        return
    engine = create_engine(postgres.database_url(config), poolclass=NullPool, connect_args={"connect_timeout": 5})
    try:
        with engine.begin() as conn:
            gone = [worker for worker in steps.workers(conn) if _gone(worker)]
            steps.give_back(conn, gone)
            steps.leave_hosts(conn, trace_ids)
    except DBAPIError as error:
        log.warning("the steps in flight go on only when their leases run out: %s", " ".join(str(error).split()))


def _gone(worker: str) -> bool:
    """Whether a worker, as `steps.worker` names it, was a process of this machine that has ended."""
    host, _, pid = worker.rpartition(":")
    if host != socket.gethostname():
        return False
    try:
        return bool(psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def running(config: Config) -> list[Service]:
    """The registered services that are alive."""
    return [service for service in processes.registered(config).values() if processes.alive(service)]


def worker_commands(
    config: Config, *, model_threads: int, lint_processes: int, execute_threads: int
) -> dict[str, list[str]]:
    """Commands of the Celery workers, by name. Requests wait on the network: threads. Linting burns CPU."""
    pools = {
        "model": ("control,sample,score", "threads", model_threads),
        "lint": ("lint", "prefork", lint_processes),
        # `control` in two workers, so that it is served where all the threads of one of them wait.
        "execute": (f"control,execute,execute.{config.host}", "threads", execute_threads),
    }
    return {
        name: [
            *(sys.executable, "-m", "celery", "-A", "tasks", "worker", "-Q", queues, "-P", pool),
            *("-c", str(size), "-n", node(config, name), "-l", "WARNING", "-E"),
            *("--without-mingle", "--without-gossip"),
        ]
        for name, (queues, pool, size) in pools.items()
    }


def node(config: Config, name: str) -> str:
    """The Celery node name of one of this host's workers."""
    return f"{name}@{config.host}"


def answering(config: Config, nodes: Iterable[str] | None = None, timeout: float = 1.0) -> set[str]:
    """The workers that answer within `timeout` seconds: of `nodes`, or of all that share the broker."""
    wanted = None if nodes is None else sorted(nodes)
    with Celery(broker=redis.broker_url(config), set_as_current=False) as app:
        replies = app.control.ping(
            destination=wanted, timeout=timeout, limit=len(wanted) if wanted else None, connect_timeout=5
        )
    return {name for reply in replies or [] for name in reply}


def _database(config: Config) -> Part:
    if config.database_url is not None:
        postgres.check(config)
        part = Part(name="postgres", started=False)
    else:
        part = _part(config, postgres.NAME, started=postgres.start(config))
    schema.upgrade(postgres.database_url(config))
    return part


def _broker(config: Config) -> Part:
    if config.broker_url is not None:
        redis.check(config)
        return Part(name="redis", started=False)
    started = redis.start(config)
    if started:
        engine = create_engine(postgres.database_url(config), poolclass=NullPool)
        with engine.begin() as conn:
            steps.broker_is_new(conn)
    return _part(config, redis.NAME, started=started)


def _part(config: Config, name: str, *, started: bool) -> Part:
    service = processes.registered(config)[name]
    return Part(name=name, started=started, pid=service.pid, url=service.url, log=service.log)


def _beat_command(config: Config) -> list[str]:
    schedule = config.home / "beat-schedule"
    return [
        *(sys.executable, "-m", "celery", "-A", "tasks", "beat", "-l", "WARNING", "--pidfile="),
        "-s",
        str(schedule),
    ]


def _pages(config: Config) -> list[Part]:
    """What people look at in a browser. Nothing depends on it, so nobody waits until it answers."""
    parts = []
    for name, port in ((flower.NAME, config.flower_port), (VIEWER, config.viewer_port)):
        started = False
        if processes.find(config, name) is None:
            if port == 0 or (name == VIEWER and importlib.util.find_spec("weavegen.viewer") is None):
                continue
            port = _port_near(port)
            environ = child_environment(config)
            command = [sys.executable, "-m", "weavegen.cli", "serve", "--port", str(port)]
            if name == flower.NAME:
                command, environ = flower.command(port, processes.LOOPBACK), flower.environment(environ)
            processes.start(config, name, command, url=f"http://{processes.LOOPBACK}:{port}", environ=environ)
            started = True
        parts.append(_part(config, name, started=started))
    return parts


def _port_near(wanted: int) -> int:
    """`wanted`, or a free port where another installation of this machine has it."""
    try:
        return processes.free_port(wanted)
    except UsageError:
        return processes.free_port(None)


def _workers(config: Config, commands: dict[str, list[str]]) -> list[Part]:
    new: list[Service] = []
    try:
        for name, command in commands.items():
            if processes.find(config, name) is None:
                new.append(processes.start(config, name, command, environ=child_environment(config)))
        _wait_for_workers(config, [processes.registered(config)[name] for name in commands])
    except BaseException:
        processes.stop(config, new)
        raise
    started = {service.name for service in new}
    return [_part(config, name, started=name in started) for name in commands]


def _wait_for_workers(config: Config, services: list[Service]) -> None:
    deadline = time.monotonic() + processes.START_TIMEOUT
    silent = {node(config, service.name) for service in services if service.name != BEAT}
    while silent:
        for service in services:
            if not processes.alive(service):
                raise UsageError(processes.failure(service.name, Path(service.log) if service.log else None))
        if time.monotonic() > deadline:
            raise UsageError(f"{', '.join(sorted(silent))} did not answer in time: see {config.logs}")
        silent -= answering(config, silent)


def child_environment(config: Config) -> dict[str, str]:
    """What a child needs to read the same configuration and to find this very code."""
    environ = processes.environment(config)
    # A source tree that is not installed is on our path only because we were started in it.
    root = str(Path(weavegen.__file__).parent.parent)
    if root != sysconfig.get_path("purelib"):
        environ["PYTHONPATH"] = ":".join(filter(None, [root, environ.get("PYTHONPATH")]))
    return environ
