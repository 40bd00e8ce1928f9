"""`weavegen doctor`: looks at every part, and says what to do about what is missing."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from weavegen.config import Config
from weavegen.errors import ModelError, TransientError, UsageError
from weavegen.pool.http import Http
from weavegen.pool.served import list_models
from weavegen.sandbox import groups
from weavegen.sandbox.providers import provider
from weavegen.services import fleet, model_server, postgres, processes, redis, schema
from weavegen.store import servers

ENOUGH_DISK = 5 * 2**30
"""Bytes; traces are megabytes each, and every candidate is kept."""
ANSWER_TIMEOUT = 5.0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found."""

    name: str
    ok: bool
    detail: str
    advice: str = ""
    """What to do about it, where it is not well."""


def examine(config: Config) -> list[Finding]:
    """All checks, in the order in which they are to be put right. Starts nothing."""
    checks: list[Callable[[Config], Finding]] = [
        _python,
        _home,
        _disk,
        _bubblewrap,
        _tmux,
        _binaries,
        _database,
        _schema,
        _broker,
        _model,
        _workers,
    ]
    return [check(config) for check in checks]


def _python(config: Config) -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding(
        name="python", ok=sys.version_info >= (3, 11), detail=version, advice="install Python 3.11 or newer"
    )


def _home(config: Config) -> Finding:
    folder = next(folder for folder in (config.home, *config.home.parents) if folder.exists())
    return Finding(
        name="home",
        ok=folder.is_dir() and os.access(folder, os.W_OK | os.X_OK),
        detail=str(config.home),
        advice="set WEAVEGEN_HOME to a folder that you can write to",
    )


def _disk(config: Config) -> Finding:
    folder = next(folder for folder in (config.home, *config.home.parents) if folder.exists())
    free = shutil.disk_usage(folder).free
    return Finding(
        name="disk",
        ok=free >= ENOUGH_DISK,
        detail=f"{free / 2**30:.1f} GiB free",
        advice="make room, or set WEAVEGEN_HOME to a bigger disk",
    )


def _bubblewrap(config: Config) -> Finding:
    if config.sandbox == "none":
        return Finding(
            name="bubblewrap", ok=True, detail="not used: WEAVEGEN_SANDBOX=none, traces are not isolated"
        )
    try:
        provider(config.sandbox).require()
    except UsageError as error:
        return Finding(name="bubblewrap", ok=False, detail="no boxes", advice=str(error))
    made = "limited by control groups" if groups.parents() else "no control groups: limited by the watch alone"
    return Finding(name="bubblewrap", ok=True, detail=f"{shutil.which('bwrap')}, {made}")


def _tmux(config: Config) -> Finding:
    program = shutil.which("tmux")
    problem = _fails([program, "-V"]) if program else "not found"
    return Finding(
        name="tmux", ok=problem is None, detail=problem or str(program), advice="install the package tmux"
    )


def _fails(command: list[str]) -> str | None:
    """Why a command does not work, in one line; None if it does."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else " ".join(done.stderr.split()) or f"exit code {done.returncode}"


def _binaries(config: Config) -> Finding:
    needed: list[Callable[[], Path]] = []
    if config.database_url is None:
        needed.append(lambda: postgres.binaries() / "postgres")
    if config.broker_url is None:
        needed.append(redis.binary)
    try:
        programs = [find() for find in needed]
    except UsageError as error:
        return Finding(name="embedded services", ok=False, detail="missing", advice=str(error))
    problem = next((problem for program in programs if (problem := _fails([str(program), "--version"]))), None)
    return Finding(
        name="embedded services",
        ok=problem is None,
        detail=problem or ", ".join(program.name for program in programs) or "not used",
        advice="install weavegen again, or set DATABASE_URL and CELERY_BROKER_URL to servers of your own",
    )


def _database(config: Config) -> Finding:
    try:
        postgres.check(config)
    except UsageError as error:
        return Finding(name="database", ok=False, detail="does not answer", advice=str(error))
    return Finding(name="database", ok=True, detail="embedded" if config.database_url is None else "DATABASE_URL")


def _schema(config: Config) -> Finding:
    try:
        postgres.check(config)
        found, newest = schema.current(postgres.database_url(config)), schema.newest()
    except UsageError:
        return Finding(name="schema", ok=False, detail="unknown", advice="bring the database up first")
    return Finding(
        name="schema",
        ok=found == newest,
        detail=f"at {found or 'nothing'}, this version needs {newest or 'nothing'}",
        advice="bring it up to date with `weavegen up`",
    )


def _broker(config: Config) -> Finding:
    try:
        redis.check(config)
    except UsageError as error:
        return Finding(name="broker", ok=False, detail="does not answer", advice=str(error))
    return Finding(name="broker", ok=True, detail="embedded" if config.broker_url is None else "CELERY_BROKER_URL")


def _model(config: Config) -> Finding:
    keys: Mapping[str, str] = {}
    try:
        url = postgres.database_url(config)
        with create_engine(url, poolclass=NullPool, connect_args={"connect_timeout": 5}).connect() as conn:
            keys = servers.members(conn, config).keys
    except (DBAPIError, UsageError):  # the lent ones can't be told: look at those of the configuration
        with contextlib.suppress(UsageError):
            keys = dict.fromkeys(model_server.urls(config), config.api_key)
    if not keys:
        advice = "set OPENAI_BASE_URL, start a small one with `weavegen up`, or add one: `weavegen pool add`"
        return Finding(name="model", ok=False, detail="none", advice=advice)
    seen: set[str] = set()
    for url, key in keys.items():
        try:
            models = list_models(url, Http(key, ANSWER_TIMEOUT), ANSWER_TIMEOUT)
            seen |= {model.id for model in models[:1]}  # adapters come after the model
        except (TransientError, ModelError):
            advice = "start it, or check OPENAI_BASE_URL and OPENAI_API_KEY"
            return Finding(name="model", ok=False, detail=f"{_place(url)} does not answer", advice=advice)
    simulated = " (simulated)" if model_server.simulated(config) else ""
    detail = f"{', '.join(sorted(seen))}{simulated} on {', '.join(map(_place, keys))}"
    return Finding(
        name="model", ok=len(seen) == 1, detail=detail, advice="all servers must serve one and the same model"
    )


def _place(url: str) -> str:
    """Host and port alone: the rest of an address may hold a password."""
    try:
        parts = urlsplit(url)
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
    except ValueError:
        return "an address that can't be read"


def _workers(config: Config) -> Finding:
    advice = f"start them with `weavegen up`; their logs are in {config.logs}"
    try:
        redis.check(config)
        nodes = fleet.answering(config)
    except UsageError:
        return Finding(name="workers", ok=False, detail="unknown", advice="bring the broker up first")
    wanted = {fleet.node(config, name) for name in fleet.WORKERS if processes.find(config, name)}
    silent = sorted(wanted - nodes)
    detail = f"{', '.join(sorted(nodes)) or 'none'} answer" + (f"; silent: {', '.join(silent)}" if silent else "")
    return Finding(name="workers", ok=bool(nodes) and not silent, detail=detail, advice=advice)
