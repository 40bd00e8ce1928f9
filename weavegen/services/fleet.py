"""Starts and stops all parts of an installation on this machine (`weavegen up`, `weavegen down`)."""

import logging
import os
import socket
import sys
import sysconfig
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from celery import Celery

from weavegen import folders, sql
from weavegen.config import PERSONAL, SECRET, Config, differing, shown_settings, stored_settings
from weavegen.errors import UsageError
from weavegen.sandbox import environment as environments
from weavegen.sandbox.providers import start_time
from weavegen.services import model_server, postgres, processes, redis, schema, vllm
from weavegen.services.processes import SUPERVISOR, Service
from weavegen.store import steps, urls, workers
from weavegen.store.session import unpooled

log = logging.getLogger(__name__)

BEAT = "beat"
WORKERS = ("model", "lint", "execute")
FIXED = frozenset({"DATABASE_URL", "CELERY_BROKER_URL", "WEAVEGEN_HOST"})
"""Settings that change what an installation is: `up` does not change them while workers run."""
VIEWER = "viewer"
FLOWER = "flower"
PORTS = {VIEWER: "WEAVEGEN_VIEWER", FLOWER: "WEAVEGEN_FLOWER"}
NOT_OF_WORKERS = PERSONAL | {"WEAVEGEN_MODEL", "WEAVEGEN_VLLM", "WEAVEGEN_READER_URL", *PORTS.values()}
"""Settings that workers do not use."""
DRAIN_FILE = "drain"
"""The file in the home in which `down` writes the seconds for which it waits for the workers."""
ORPHAN_SECONDS = 20.0
"""Time for the services of a removed home to end by themselves."""
RESTART_SECONDS = 30.0
"""Time in which workers answer again after a restart, on a busy machine."""
FLOWER_SETTINGS = {
    # It has no password. It listens on loopback only, but any web page in a browser could post to it.
    "FLOWER_READ_ONLY": "true",
    # 20,000 tasks take 120 MB, and are 20 seconds at 1,000 tasks a second (docs/flower.md).
    "FLOWER_MAX_TASKS": "20000",
    "FLOWER_PURGE_OFFLINE_WORKERS": "600",
    "FLOWER_TASKS_COLUMNS": "name,args,state,result,received,runtime,worker,exception",
}
"""Environment variables that change Flower's defaults. Variables that are set already have priority."""
OWN_ENVIRON = {FLOWER: FLOWER_SETTINGS, model_server.NANO: model_server.NANO_ENVIRON}
"""By service: environment variables to set, unless they are set already."""
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
    store: bool = True,
    vllm_options: Mapping[str, Any] | None = None,
) -> list[Part]:
    """Start the parts that do not run yet, and wait until all of them answer. Raises UsageError.

    The model is `config.model`, unless the configuration names a model server. With `pages`, Flower and the viewer
    are started, too, without waiting for them.

    With `store`, the settings become those of the installation: workers that run with others are stopped, as `down`
    does, and restarted. `vllm_options`: arguments of `vllm.start`.
    """
    folders.prepare(config)
    with folders.locked(lock_path(config)):
        if orphans := processes.wait(processes.orphans(config), ORPHAN_SECONDS):  # of an earlier home in this place
            pids = ", ".join(str(process.pid) for process in orphans)
            advice = "run `weavegen down`, then `up`"
            raise UsageError(f"services of a removed {config.home} run (processes {pids}): {advice}")
        model_server.require_no_other(config)
        if store:
            _stop_outdated(config)
        parts = [_database(config), _broker(config)]
        if config.model_url is None and (model := model_server.vllm_model(config)) is not None:
            servers, started = vllm.start(config, model, **(vllm_options or {}))
            parts += [_part(config, server.name, started=started) for server in servers]
        elif config.model != model_server.NONE and config.model_url is None:
            environ = child_environment(config, model_server.NANO)
            name, started = model_server.start(config, model_port, sim_options, environ)
            parts.append(_part(config, name, started=started))
        commands = worker_commands(config, model=model_threads, lint=2, execute=execute_threads)
        commands[BEAT] = [sys.executable, "-m", "celery", "-A", "tasks", "beat", "-l", "WARNING", "--pidfile="]
        parts += _workers(config, commands)
        if store:
            _store_settings(config)
        parts += _pages(config) if pages else []
        return [*parts, _part(config, SUPERVISOR, started=start_supervisor(config))]


def down(config: Config, drain: float | None = None) -> list[Service]:
    """Stop everything that `up` started. Returns what was running.

    Workers are stopped first, and have `drain` seconds (None: WEAVEGEN_DRAIN) to finish their steps. Unfinished
    steps are released, so that the next `up` can continue them at once.
    """
    if not config.home.is_dir():
        return []
    with folders.locked(lock_path(config)):
        services = processes.registered(config)
        ended = processes.stop(config, [services[SUPERVISOR]] if SUPERVISOR in services else [])
        celery = [services[name] for name in (BEAT, *WORKERS) if name in services]
        started = environments.running(config)
        ended += _drain(config, celery, config.drain if drain is None else drain)
        started += environments.running(config)
        processes.end_orphans(config)
        for environment in started:  # environments outlive workers, but not the installation
            environment.stop()
        _give_back(config)
        last = {postgres.NAME, redis.NAME, SUPERVISOR} | {service.name for service in celery}
        ended += processes.stop(config, [service for name, service in services.items() if name not in last])
        for name, stop in ((redis.NAME, redis.stop), (postgres.NAME, postgres.stop)):
            if stop(config) and name in services:
                ended.append(services[name])
        return ended


def lock_path(config: Config) -> Path:
    """Return the file whose lock `up`, `down` and the supervisor hold while they start and stop services."""
    return config.home / "up.lock"


def _drain(config: Config, services: list[Service], seconds: float) -> list[Service]:
    """Stop workers, which have `seconds` to finish their steps. Returns those that ran."""
    drain_file = config.home / DRAIN_FILE
    drain_file.write_text(str(seconds))
    try:
        return processes.stop(config, services, grace=seconds)
    finally:
        drain_file.unlink(missing_ok=True)


def drain_seconds(config: Config) -> float:
    """Return how long a worker may take to finish its steps after SIGTERM: as `down` says, else WEAVEGEN_DRAIN."""
    try:
        return float((config.home / DRAIN_FILE).read_text())
    except (OSError, ValueError):
        return config.drain


def _give_back(config: Config) -> None:
    """Release the steps of ended workers of this machine in the database, and let any host continue its traces.

    Also traces whose environments had ended before: their steps would wait for a worker of this host.
    """
    if config.database_url is None and postgres.find(config) is None:
        return
    try:
        with unpooled(urls.database_url(config)).begin() as conn:
            gone = [worker for worker in sql.run(conn, "store/holders_of_steps").scalars() if _gone(worker)]
            steps.give_back(conn, gone)
            workers.forget(conn, [row.process for row in workers.rows(conn) if _gone(row.process)])
            found = sql.run(conn, "store/traces_of_host", host=config.host, silent=workers.SILENT_SECONDS)
            steps.unbind_hosts(conn, found.scalars())
    except psycopg.Error as error:
        log.warning("steps in flight can only continue when their leases expire: %s", " ".join(str(error).split()))


def _gone(worker: str) -> bool:
    """Whether a worker, named as by `steps.worker`, was a process of this machine and has ended."""
    host, _, pid = worker.rpartition(":")
    return host == socket.gethostname() and start_time(int(pid)) is None


def running(config: Config) -> list[Service]:
    """Return the registered services that are alive."""
    return [service for service in processes.registered(config).values() if processes.alive(service)]


def worker_commands(config: Config, *, model: int, lint: int, execute: int) -> dict[str, list[str]]:
    """Return the Celery workers' commands, by name. Linting computes, in processes; the others wait, in threads."""
    pools = {
        "model": ("control,sample,score", "threads", model),
        "lint": ("lint", "prefork", lint),
        # Two workers serve `control`, in case all threads of one of them wait.
        "execute": (f"control,execute,execute.{config.host}", "threads", execute),
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
    return {name for reply in replies or [] if isinstance(reply, dict) for name in reply}


def serves(config: Config) -> bool:
    """Return whether a worker answers, after at most RESTART_SECONDS while `up` or the supervisor may start one."""
    deadline, has_home = time.monotonic() + RESTART_SECONDS, config.home.is_dir()
    while not answering(config):
        starts = has_home and (_locked(config) or processes.find(config, SUPERVISOR))
        if time.monotonic() > deadline or not starts:
            return False
    return True


def _locked(config: Config) -> bool:
    """Whether a command or the supervisor starts or stops services now."""
    try:
        with folders.locked(lock_path(config), timeout=0):
            return False
    except UsageError:
        return True


def _stop_outdated(config: Config) -> None:
    """Stop services that run with other settings, so that `up` starts them with these. Raises UsageError."""
    before, now = stored_settings(config.stored), shown_settings(config)
    unset = _unset_secrets(before)
    changed = [name for name in differing(before, now) if name not in unset]
    restarts = bool(set(changed) - NOT_OF_WORKERS)
    if unset and (restarts or any(processes.find(config, name) is None for name in (BEAT, *WORKERS))):
        raise UsageError(f"this installation was started with {unset[0]}, which is unset here: set it, or set it empty")
    users = [BEAT, *WORKERS, VIEWER, FLOWER] if restarts else []
    users = users or [name for name, variable in PORTS.items() if variable in changed]
    if stopped := [service for name in users if (service := processes.find(config, name)) is not None]:
        if fixed := [name for name in changed if name in FIXED]:
            raise UsageError(f"{' and '.join(fixed)} can't change while the workers run: `weavegen down`, then `up`")
        log.warning("%s changed: restarting %s", ", ".join(changed), ", ".join(users))
        services = processes.registered(config)
        processes.stop(config, [services[SUPERVISOR]] if SUPERVISOR in services else [])
        _drain(config, stopped, config.drain)
        if config.model_url is not None:
            own = [server for server in model_server.servers(config) if server.url not in model_server.urls(config)]
            processes.stop(config, own)


def _unset_secrets(before: Mapping[str, str]) -> list[str]:
    """Return the secrets that the installation was started with and that are not set in this process."""
    return [name for name in before if SECRET.search(name) and before[name] and name not in os.environ]


def _store_settings(config: Config) -> None:
    """Make the settings those of the installation. Secrets that are not known here stay."""
    before = stored_settings(config.stored)
    settings = shown_settings(config) | {name: before[name] for name in _unset_secrets(before)}
    draft = config.stored.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(settings), indent=2))
    draft.replace(config.stored)


def start_supervisor(config: Config) -> bool:
    """Start the supervisor. Returns False if it runs."""
    if processes.find(config, SUPERVISOR) is not None:
        return False
    command = [sys.executable, "-m", "weavegen.services.supervisor"]
    processes.start(config, SUPERVISOR, command, environ=child_environment(config))
    return True


def _database(config: Config) -> Part:
    if config.database_url is not None:
        postgres.check(config)
        part = Part(name="postgres", started=False)
    else:
        part = _part(config, postgres.NAME, started=postgres.start(config))
    schema.migrate(urls.database_url(config))
    return part


def _broker(config: Config) -> Part:
    if config.broker_url is not None:
        redis.check(config)
        return Part(name="redis", started=False)
    return _part(config, redis.NAME, started=start_broker(config))


def start_broker(config: Config) -> bool:
    """Start the embedded Redis, and let the sweeper send all ready steps to it. Returns False if it runs."""
    if not redis.start(config):
        return False
    with unpooled(urls.database_url(config)).begin() as conn:
        sql.run(conn, "store/send_all_again")
    return True


def _part(config: Config, name: str, *, started: bool) -> Part:
    service = processes.registered(config)[name]
    return Part(name=name, started=started, pid=service.pid, url=service.url, log=service.log)


def _pages(config: Config) -> list[Part]:
    """Start Flower and the viewer, without waiting until they answer."""
    parts = []
    for name, port in ((FLOWER, config.flower_port), (VIEWER, config.viewer_port)):
        if starts := processes.find(config, name) is None:
            if port == 0:
                continue
            try:
                port = processes.free_port(port)
            except UsageError:  # it is in use, perhaps by another installation
                port = processes.free_port(None)
            command = [sys.executable, "-m", "weavegen.cli", "serve", "--port", str(port)]
            if name == FLOWER:
                command = flower_command(port, processes.LOOPBACK)
            url = f"http://{processes.LOOPBACK}:{port}"
            processes.start(config, name, command, url=url, environ=child_environment(config, name))
        parts.append(_part(config, name, started=starts))
    return parts


def flower_command(port: int, address: str) -> list[str]:
    """Return the command. It is quiet because Flower's banner shows the broker's URL, perhaps with a password."""
    return [
        *(sys.executable, "-m", "celery", "-q", "-A", "tasks", "flower"),
        *(f"--address={address}", f"--port={port}", "--logging=warning"),
    ]


def _workers(config: Config, commands: dict[str, list[str]]) -> list[Part]:
    new: list[Service] = []
    try:
        for name, command in commands.items():
            if processes.find(config, name) is None:
                # Celery opens the file again if it is removed or moved away (logrotate).
                command += ["--logfile", str(processes.log_path(config, name)).replace("%", "%%")]
                new.append(processes.start(config, name, command, environ=child_environment(config)))
        services, silent = processes.registered(config), {node(config, name) for name in commands if name != BEAT}
        deadline = time.monotonic() + processes.START_TIMEOUT_SECONDS
        while silent:
            for service in (services[name] for name in commands):
                if not processes.alive(service):
                    raise UsageError(processes.failure(service.name, service.log))
            if time.monotonic() > deadline:
                raise UsageError(f"{', '.join(sorted(silent))} did not answer in time: see {config.logs}")
            silent -= answering(config, silent)
    except BaseException:
        processes.stop(config, new)
        raise
    started = {service.name for service in new}
    return [_part(config, name, started=name in started) for name in commands]


def child_environment(config: Config, name: str = "") -> dict[str, str]:
    """Return a child's environment: the configuration, the path of this code, own variables of the service `name`."""
    environ = OWN_ENVIRON.get(name, {}) | processes.environment(config)
    # A source tree that is not installed is found only from its own folder.
    root = str(Path(__file__).parents[2])
    if root != sysconfig.get_path("purelib"):
        environ["PYTHONPATH"] = ":".join(filter(None, [root, environ.get("PYTHONPATH")]))
    return environ
