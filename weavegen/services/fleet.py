"""Starts and stops all parts of an installation on this machine (`weavegen up`, `weavegen down`)."""

import logging
import socket
import sys
import sysconfig
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec
import psutil  # type: ignore[import-untyped]
from celery import Celery
from sqlalchemy.exc import DBAPIError

from weavegen import folders
from weavegen.config import Config
from weavegen.errors import UsageError
from weavegen.sandbox import environment as environments
from weavegen.services import model_server, postgres, processes, redis, schema
from weavegen.services.processes import Service
from weavegen.store import steps, urls
from weavegen.store.session import unpooled_engine

log = logging.getLogger(__name__)

BEAT = "beat"
WORKERS = ("model", "lint", "execute")
VIEWER = "viewer"
FLOWER = "flower"
FLOWER_SETTINGS = {
    # It has no password. It listens on loopback only, but any web page in a browser could post to it.
    "FLOWER_READ_ONLY": "true",
    # 20,000 tasks take 120 MB, and are 20 seconds at 1,000 tasks a second (docs/flower.md).
    "FLOWER_MAX_TASKS": "20000",
    "FLOWER_PURGE_OFFLINE_WORKERS": "600",
    "FLOWER_TASKS_COLUMNS": "name,args,state,result,received,runtime,worker,exception",
}
"""Environment variables that change Flower's defaults. Variables that are set already have priority."""
MODEL_THREADS = 256
"""Steps that wait for the model at the same time: mostly one per active trace. A waiting thread costs little."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the installation, as `up` left it."""

    name: str
    started: bool
    """False: it ran already."""
    pid: int | None = None
    """None: the part is the user's own, named by its URL."""
    url: str | None = None
    log: str | None = None


def up(
    config: Config,
    *,
    model_threads: int = MODEL_THREADS,
    execute_threads: int = 16,
    model_port: int | None = None,
    sim_options: Sequence[str] = (),
    pages: bool = False,
) -> list[Part]:
    """Start the parts that do not run yet, and wait until all of them answer. Raises UsageError.

    The model is `config.model`, unless the configuration names a model server. With `pages`, Flower and the viewer
    are started, too, without waiting for them.
    """
    folders.prepare(config)
    with folders.locked(config.home / "up.lock"):
        parts = [_database(config), _broker(config)]
        if config.model != model_server.NONE and config.model_url is None:
            name, started = model_server.start(config, model_port, sim_options, child_environment(config))
            parts.append(_part(config, name, started=started))
        commands = worker_commands(
            config, model_threads=model_threads, lint_processes=2, execute_threads=execute_threads
        )
        commands[BEAT] = [
            *(sys.executable, "-m", "celery", "-A", "tasks", "beat", "-l", "WARNING", "--pidfile="),
            *("-s", str(config.home / "beat-schedule")),
        ]
        parts += _workers(config, commands)
        return parts + (_pages(config) if pages else [])


def down(config: Config, drain: float | None = None) -> list[Service]:
    """Stop everything that `up` started. Returns what was running.

    Workers are stopped first, and have `drain` seconds (None: WEAVEGEN_DRAIN) to finish their steps. Unfinished
    steps are released, so that the next `up` can continue them at once.
    """
    if not config.home.is_dir():
        return []
    if drain is None:
        drain = config.drain
    with folders.locked(config.home / "up.lock"):
        services = processes.registered(config)
        workers = [services[name] for name in (BEAT, *WORKERS) if name in services]
        started = environments.running(config)
        drain_file = _drain_path(config)
        drain_file.write_text(str(drain))
        try:
            ended = processes.stop(config, workers, grace=drain)
        finally:
            drain_file.unlink(missing_ok=True)
        started += environments.running(config)
        for environment in started:  # environments outlive workers, but not the installation
            environment.stop()
        _give_back(config, [environment.trace_id for environment in started])
        last = {postgres.NAME, redis.NAME} | {service.name for service in workers}
        ended += processes.stop(config, [service for name, service in services.items() if name not in last])
        for name, stop in ((redis.NAME, redis.stop), (postgres.NAME, postgres.stop)):
            if stop(config) and name in services:
                ended.append(services[name])
        return ended


def _drain_path(config: Config) -> Path:
    """Return the file in which `down` writes the seconds for which it waits for the workers."""
    return config.home / "drain"


def drain_seconds(config: Config) -> float:
    """Return how long a worker may finish its steps after SIGTERM: as `down` says, else WEAVEGEN_DRAIN."""
    try:
        return float(_drain_path(config).read_text())
    except (OSError, ValueError):
        return config.drain


def _give_back(config: Config, trace_ids: Sequence[int]) -> None:
    """Release the steps of ended workers of this machine in the database, and the environments of the traces."""
    if config.database_url is None and postgres.find(config) is None:
        return
    try:
        with unpooled_engine(urls.database_url(config)).begin() as conn:
            gone = [worker for worker in steps.workers(conn) if _gone(worker)]
            steps.give_back(conn, gone)
            steps.unbind_hosts(conn, trace_ids)
    except DBAPIError as error:
        log.warning("steps in flight can only continue when their leases expire: %s", " ".join(str(error).split()))


def _gone(worker: str) -> bool:
    """Whether a worker, named as by `steps.worker`, was a process of this machine and has ended."""
    host, _, pid = worker.rpartition(":")
    if host != socket.gethostname():
        return False
    try:
        return bool(psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def running(config: Config) -> list[Service]:
    """Return the registered services that are alive."""
    return [service for service in processes.registered(config).values() if processes.alive(service)]


def worker_commands(
    config: Config, *, model_threads: int, lint_processes: int, execute_threads: int
) -> dict[str, list[str]]:
    """Return the commands of the Celery workers, by name. Linting needs processors, the others wait: threads."""
    pools = {
        "model": ("control,sample,score", "threads", model_threads),
        "lint": ("lint", "prefork", lint_processes),
        # Two workers serve `control`, in case all threads of one of them wait.
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
    """Return the Celery node name of a worker of this host."""
    return f"{name}@{config.host}"


def answering(config: Config, nodes: Collection[str] = ()) -> set[str]:
    """Return the workers that answer within a second: of `nodes`, or of all that share the broker."""
    wanted = sorted(nodes) or None
    with Celery(broker=redis.broker_url(config), set_as_current=False) as app:
        replies = app.control.ping(destination=wanted, timeout=1.0, limit=len(nodes) or None, connect_timeout=5)
    return {name for reply in replies or [] for name in reply}


def _database(config: Config) -> Part:
    if config.database_url is not None:
        postgres.check(config)
        part = Part(name="postgres", started=False)
    else:
        part = _part(config, postgres.NAME, started=postgres.start(config))
    schema.upgrade(urls.database_url(config))
    return part


def _broker(config: Config) -> Part:
    if config.broker_url is not None:
        redis.check(config)
        return Part(name="redis", started=False)
    started = redis.start(config)
    if started:
        with unpooled_engine(urls.database_url(config)).begin() as conn:
            steps.send_all_again(conn)
    return _part(config, redis.NAME, started=started)


def _part(config: Config, name: str, *, started: bool) -> Part:
    service = processes.registered(config)[name]
    return Part(name=name, started=started, pid=service.pid, url=service.url, log=service.log)


def _pages(config: Config) -> list[Part]:
    """Start Flower and the viewer, without waiting until they answer."""
    parts = []
    for name, port in ((FLOWER, config.flower_port), (VIEWER, config.viewer_port)):
        started = False
        if processes.find(config, name) is None:
            if port == 0:
                continue
            port = _port_near(port)
            environ = child_environment(config)
            command = [sys.executable, "-m", "weavegen.cli", "serve", "--port", str(port)]
            if name == FLOWER:
                command, environ = flower_command(port, processes.LOOPBACK), FLOWER_SETTINGS | environ
            processes.start(config, name, command, url=f"http://{processes.LOOPBACK}:{port}", environ=environ)
            started = True
        parts.append(_part(config, name, started=started))
    return parts


def flower_command(port: int, address: str) -> list[str]:
    """Return the command. It is quiet because Flower's banner shows the broker's URL, perhaps with a password."""
    return [
        *(sys.executable, "-m", "celery", "-q", "-A", "tasks", "flower"),
        *(f"--address={address}", f"--port={port}", "--logging=warning"),
    ]


def _port_near(wanted: int) -> int:
    """Return `wanted`, or a free port if it is in use, as by another installation."""
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
    deadline = time.monotonic() + processes.START_TIMEOUT_SECONDS
    silent = {node(config, service.name) for service in services if service.name != BEAT}
    while silent:
        for service in services:
            if not processes.alive(service):
                raise UsageError(processes.failure(service.name, service.log))
        if time.monotonic() > deadline:
            raise UsageError(f"{', '.join(sorted(silent))} did not answer in time: see {config.logs}")
        silent -= answering(config, silent)


def child_environment(config: Config) -> dict[str, str]:
    """Return the environment of a child: the same configuration, and a path to this code."""
    environ = processes.environment(config)
    # A source tree that is not installed is found only from its own folder.
    root = str(Path(__file__).parents[2])
    if root != sysconfig.get_path("purelib"):
        environ["PYTHONPATH"] = ":".join(filter(None, [root, environ.get("PYTHONPATH")]))
    return environ
