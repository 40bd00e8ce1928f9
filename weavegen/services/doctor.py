"""`weavegen doctor`: checks each part of an installation, and gives advice where something is missing."""

import contextlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
import psycopg

from weavegen.config import Config, differing, shown_settings
from weavegen.database import Connection
from weavegen.errors import ModelError, TransientError, UsageError
from weavegen.pool import capabilities
from weavegen.pool.capabilities import Capabilities
from weavegen.pool.served import models_at
from weavegen.sandbox import groups, packages
from weavegen.sandbox.providers import provider
from weavegen.services import fleet, model_server, pool_members, postgres, processes, redis, schema
from weavegen.services.faults import faults, service_faults
from weavegen.store import servers, urls, workers
from weavegen.store.session import unpooled
from weavegen.version import __version__

T = TypeVar("T")
OF_A_HOST = fleet.NOT_OF_WORKERS | {"WEAVEGEN_HOST"}
"""Settings in which hosts may differ, or that workers do not use."""
MIN_FREE_BYTES = 5 * 2**30
"""A trace takes megabytes, because every candidate is kept."""
ANSWER_TIMEOUT_SECONDS = 5.0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check."""

    name: str
    ok: bool
    detail: str
    advice: str = ""
    """How to fix it, if not ok."""


class Problem(Exception):
    """A check failed. The arguments are the detail and the advice of the finding."""


def examine(config: Config) -> list[Finding]:
    """Run all checks. They start nothing. Problems should be fixed in the order of the findings."""
    findings = []
    for name, check in CHECKS.items():
        try:
            findings.append(Finding(name=name, ok=True, detail=check(config)))
        except Problem as problem:
            findings.append(Finding(name=name, ok=False, detail=problem.args[0], advice=problem.args[1]))
    found = _stored(config, lambda conn: faults(conn, config), None)
    return findings + [
        Finding(name=fault.kind, ok=False, detail=fault.what, advice=fault.advice)
        for fault in (service_faults(config) if found is None else found)
        if fault.kind != "server"  # the model check reports it
    ]


def _services(config: Config) -> str:
    """Count the services of this machine and their restarts. Faults among them are findings of their own."""
    running = [service for service in fleet.running(config) if not service.temporary]
    restarted = [f"{service.name} {service.restarts}x" for service in running if service.restarts]
    return f"{len(running)} run here" + (f", restarted: {', '.join(restarted)}" if restarted else "")


def _settings(config: Config) -> str:
    """Compare the settings of this command, of the installation and of the workers."""
    with _problem("unknown", "start the database first"):
        postgres.check(config)
    mine = shown_settings(config)
    if (found := _stored(config, lambda conn: [row for row in workers.rows(conn) if not row.silent], None)) is None:
        raise Problem("unknown", "migrate the database with `weavegen up`")
    others, versions = {row.node: row.settings for row in found}, {row.version for row in found} - {__version__}
    for node, settings in others.items():
        for name in sorted(set(differing(settings, mine)) - OF_A_HOST):
            raise Problem(
                f"{name} is {mine[name] or 'not set'} here, and {settings[name] or 'not set'} in {node}",
                f"run `weavegen up` to change it in the workers, or unset {name} here",
            )
    if versions:
        raise Problem(f"workers of version {', '.join(versions)} run", "run `weavegen down`, then `weavegen up`")
    return f"the same in this command and in {len(others)} workers"


@contextlib.contextmanager
def _problem(detail: str, advice: str | None = None) -> Iterator[None]:
    """Turn a UsageError of the body into a Problem. The default advice is the error's text."""
    try:
        yield
    except UsageError as error:
        raise Problem(detail, advice or str(error)) from None


def _home(config: Config) -> str:
    folder = _existing_folder(config.home)
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise Problem(str(config.home), "set WEAVEGEN_HOME to a folder that you can write to")
    return str(config.home)


def _disk(config: Config) -> str:
    free = shutil.disk_usage(_existing_folder(config.home)).free
    detail = f"{free / 2**30:.1f} GiB free"
    if free < MIN_FREE_BYTES:
        raise Problem(detail, "free some space, or set WEAVEGEN_HOME to a larger disk")
    return detail


def _existing_folder(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _bubblewrap(config: Config) -> str:
    if config.sandbox == "none":
        return "not used: WEAVEGEN_SANDBOX=none, traces are not isolated"
    with _problem("no boxes"):
        provider(config.sandbox).require()
    limited = "limited by control groups" if groups.parents() else "no control groups: limited by the watch alone"
    return f"{shutil.which('bwrap')}, {limited}"


def _packages(config: Config) -> str:
    """Count the default packages of boxes, without installing them."""
    if (found := packages.installed(config, packages.LOCK.read_text())) is None:
        raise Problem("the default packages are not installed here", "the first job installs them with pip")
    return f"{len(packages.read_versions(found))} in boxes by default"


def _tmux(config: Config) -> str:
    program = shutil.which("tmux")
    if reason := _failure([program, "-V"]) if program else "not found":
        raise Problem(reason, "install the package tmux")
    return str(program)


def _failure(command: list[str]) -> str | None:
    """Run a command. Returns why it failed, in one line; None if it succeeded."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else " ".join(done.stderr.split()) or f"exit code {done.returncode}"


def _binaries(config: Config) -> str:
    programs = []
    with _problem("missing"):
        if config.database_url is None:
            programs.append(postgres.binaries() / "postgres")
        if config.broker_url is None:
            programs.append(redis.binary())
    for program in programs:
        if reason := _failure([str(program), "--version"]):
            advice = "install weavegen again, or set DATABASE_URL and CELERY_BROKER_URL to servers of your own"
            raise Problem(reason, advice)
    return ", ".join(program.name for program in programs) or "not used"


def _answering(check: Callable[[Config], None], variable: str, config: Config) -> str:
    """Check the database or the broker, which `variable` may name."""
    with _problem("does not answer"):
        check(config)
    return variable if config.environ().get(variable) else "embedded"


def _schema(config: Config) -> str:
    with _problem("unknown", "start the database first"):
        postgres.check(config)
        with unpooled(urls.database_url(config)).connect() as conn:
            current, newest = schema.current(conn), schema.newest()
    detail = f"at {current or 'nothing'}, this version needs {newest or 'nothing'}"
    if current != newest:
        raise Problem(detail, "migrate it with `weavegen up`")
    return detail


def _model(config: Config) -> str:
    if not (keys := _server_keys(config)):
        advice = "set OPENAI_BASE_URL, start a small model with `weavegen up`, or add one: `weavegen pool add`"
        raise Problem("none", advice)
    failing = {server.url: server for server in _stored(config, lambda conn: servers.failing(conn, keys), None) or []}

    def ask(url: str) -> Problem | str | None:
        """The model, which is listed before its adapters; None: it has none. Or what is wrong with the server."""
        try:
            listed = models_at(url, keys[url], ANSWER_TIMEOUT_SECONDS)
        except (TransientError, ModelError) as error:
            said = str(error).replace(url, _address(url))
            advice = f"start it, or check OPENAI_BASE_URL and OPENAI_API_KEY: {said}"
            return Problem(f"{_address(url)} does not answer", advice)
        if url in failing:
            line = failing[url].line.replace(url, _address(url))
            return Problem(f"{_address(url)} fails all requests of the workers: {line}", failing[url].advice)
        return listed[0].id if listed else None

    with ThreadPoolExecutor(len(keys)) as threads:
        found = list(threads.map(ask, keys))
    if problems := [one.args for one in found if isinstance(one, Problem)]:
        raise Problem(*("; ".join(dict.fromkeys(texts)) for texts in zip(*problems, strict=True)))
    models = {one for one in found if isinstance(one, str)}
    simulated = " (simulated)" if model_server.simulated(config) else ""
    return f"{', '.join(sorted(models)) or 'no model'}{simulated} on {', '.join(map(_address, keys))}"


def _features(config: Config) -> str:
    """Say which agents and features the model servers lack. A server that does not answer is left to `_model`."""
    lacking = []
    for url, has in capabilities.probe_all(_server_keys(config)).items():
        if isinstance(has, Capabilities) and (missing := capabilities.lacks(has)):
            names = ", ".join(line.partition(":")[0] for line in missing)
            lacking.append(f"{_address(url)} without: {names}")
    return f"{'; '.join(lacking)} (see `weavegen pool probe`)" if lacking else "the servers provide everything"


def _stored(config: Config, read: Callable[[Connection], T], otherwise: T) -> T:
    """Return what `read` finds in the database; `otherwise` if it does not answer."""
    try:
        with unpooled(urls.database_url(config)).connect() as conn:
            return read(conn)
    except (psycopg.Error, UsageError):
        return otherwise


def _server_keys(config: Config) -> Mapping[str, str]:
    """Return API keys by base URL: of the pool's servers or, without a database, of the configured ones."""
    configured = dict[str, str]()
    with contextlib.suppress(UsageError):
        configured = dict.fromkeys(model_server.urls(config), config.api_key)
    return _stored(config, lambda conn: pool_members.members(conn, config).keys, configured)


def _address(url: str) -> str:
    """Return host and port. The rest of a URL may contain a password."""
    try:
        parts = urlsplit(url)
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
    except ValueError:
        return "an invalid address"


def _workers(config: Config) -> str:
    with _problem("unknown", "start the broker first"):
        redis.check(config)
        nodes = fleet.answering(config)
    expected = {fleet.node(config, name) for name in fleet.WORKERS if processes.find(config, name)}
    silent = sorted(expected - nodes)
    detail = f"{', '.join(sorted(nodes)) or 'none'} answer" + (f"; silent: {', '.join(silent)}" if silent else "")
    if silent or not nodes:
        raise Problem(detail, f"start them with `weavegen up`; their logs are in {config.logs}")
    return detail


CHECKS: dict[str, Callable[[Config], str]] = {
    "python": lambda config: platform.python_version(),
    "home": _home,
    "disk": _disk,
    "bubblewrap": _bubblewrap,
    "packages": _packages,
    "tmux": _tmux,
    "embedded services": _binaries,
    "database": partial(_answering, postgres.check, "DATABASE_URL"),
    "schema": _schema,
    "broker": partial(_answering, redis.check, "CELERY_BROKER_URL"),
    "model": _model,
    "features": _features,
    "workers": _workers,
    "services": _services,
    "settings": _settings,
}
"""Checks in the order in which problems should be fixed. Each returns a detail or raises Problem."""
