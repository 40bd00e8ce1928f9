"""Settings of an installation, read from the environment once per process."""

import hashlib
import logging
import os
import pwd
import re
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from weavegen.errors import UsageError

log = logging.getLogger(__name__)

SIMULATED_MODEL = "weavegen-sim"
"""The only model that the simulated server lists. What it writes is labelled as simulated."""

NO_KEY = "EMPTY"
"""What a server that wants no key is sent, as vLLM's own examples do."""


@dataclass(frozen=True)
class Config:
    """Where things are. Every field has an environment variable; the defaults need none."""

    home: Path
    """WEAVEGEN_HOME: embedded services, workspaces and logs."""
    database_url: str | None = field(repr=False)
    """DATABASE_URL; None: the embedded PostgreSQL."""
    broker_url: str | None = field(repr=False)
    """CELERY_BROKER_URL; None: the embedded Redis."""
    model_url: str | None
    """OPENAI_BASE_URL, one or several, with commas between; None: what `up` starts. A password or a query in it is
    left out: it is stored with traces, and the key goes into a header."""
    api_key: str = field(repr=False)
    """OPENAI_API_KEY."""
    host: str
    """WEAVEGEN_HOST: the name of this host's environments and of its queue `execute.<host>`."""
    max_active: int
    """WEAVEGEN_MAX_ACTIVE: traces that run at once; the others wait in Postgres."""
    lease: float
    """WEAVEGEN_LEASE: seconds after which a step whose worker fell silent is given to another."""
    sandbox: str
    """WEAVEGEN_SANDBOX: `bubblewrap`, or `none` for no isolation at all."""
    discord_token: str | None = field(repr=False)
    """WEAVEGEN_DISCORD_TOKEN: of the bot that brings channels of traces to Discord; None: nothing goes there."""
    discord_url: str
    """WEAVEGEN_DISCORD_URL: base of Discord's REST API."""
    user: str = "unknown"
    """WEAVEGEN_USER: in whose name jobs are enqueued and servers are lent; the login name by default."""
    pool_key: str = field(default=NO_KEY, repr=False)
    """WEAVEGEN_POOL_KEY: what servers that were added to the pool are sent in place of OPENAI_API_KEY."""
    reader_url: str | None = field(default=None, repr=False)
    """WEAVEGEN_READER_URL: beside DATABASE_URL, the same database with a user who can only read, for
    `weavegen sql`. The embedded PostgreSQL needs none."""
    drain: float = 20.0
    """WEAVEGEN_DRAIN: seconds that a worker which is told to end has for its steps in flight."""
    flower_port: int = 5555
    """WEAVEGEN_FLOWER: where `up` starts Flower, or on a free port where it is taken; 0: not at all."""
    viewer_port: int = 8991
    """WEAVEGEN_VIEWER: the same of the viewer."""
    model: str = "nano"
    """WEAVEGEN_MODEL: what `up` starts where there is no OPENAI_BASE_URL: `nano` (the small model that comes with
    weavegen, on the CPU), a folder with another one, `sim` (the simulation), or `none`."""

    @property
    def runtime(self) -> Path:
        """A folder for sockets: unix socket paths may be 107 bytes long at most, and `home` may be deeper."""
        if len(os.fsencode(self.home)) <= 60:
            return self.home / "run"
        digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"weavegen-{os.getuid()}-{digest}"

    @property
    def workspaces(self) -> Path:
        return self.home / "workspaces"

    @property
    def logs(self) -> Path:
        return self.home / "logs"


def load(environ: Mapping[str, str] = os.environ) -> Config:
    """The configuration that `environ` describes. Raises UsageError on a value that can't be read."""

    def number(name: str, default: float) -> float:
        text = environ.get(name, "")
        try:
            value = float(text) if text else default
        except ValueError:
            raise UsageError(f"{name}={text!r} is no number: unset it or give one") from None
        if not 0 < value < 1e9:
            raise UsageError(f"{name}={text!r} is out of range: give a number above 0")
        return value

    def port(name: str, default: int) -> int:
        text = environ.get(name, "").strip() or str(default)
        if not (text.isascii() and text.isdigit() and int(text) < 65_536):
            raise UsageError(f"{name}={text[:20]!r} is no port: give 1 to 65535, or 0 to leave it out")
        return int(text)

    def secret(name: str) -> str | None:
        text = environ.get(name, "").strip()
        # The HTTP libraries refuse such a header with an error that repeats it.
        if not (text.isascii() and text.isprintable()):
            raise UsageError(f"{name} holds characters that can't be sent: give printable ASCII")
        return text or None

    return Config(
        home=Path(environ.get("WEAVEGEN_HOME") or ".weavegen").absolute(),
        database_url=environ.get("DATABASE_URL") or None,
        broker_url=environ.get("CELERY_BROKER_URL") or None,
        model_url=_without_secrets(environ.get("OPENAI_BASE_URL") or ""),
        api_key=secret("OPENAI_API_KEY") or NO_KEY,
        host=environ.get("WEAVEGEN_HOST") or socket.gethostname(),
        max_active=int(number("WEAVEGEN_MAX_ACTIVE", 64)),
        lease=number("WEAVEGEN_LEASE", 15.0),
        sandbox=environ.get("WEAVEGEN_SANDBOX") or "bubblewrap",
        discord_token=secret("WEAVEGEN_DISCORD_TOKEN"),
        discord_url=environ.get("WEAVEGEN_DISCORD_URL") or "https://discord.com/api/v10",
        user=person(environ.get("WEAVEGEN_USER") or login(), "WEAVEGEN_USER"),
        pool_key=secret("WEAVEGEN_POOL_KEY") or NO_KEY,
        reader_url=environ.get("WEAVEGEN_READER_URL") or None,
        drain=number("WEAVEGEN_DRAIN", Config.drain),
        flower_port=port("WEAVEGEN_FLOWER", Config.flower_port),
        viewer_port=port("WEAVEGEN_VIEWER", Config.viewer_port),
        model=environ.get("WEAVEGEN_MODEL") or Config.model,
    )


def person(name: str, what: str) -> str:
    """A name of somebody, as it can be stored and shown. Raises UsageError; `what` was given it."""
    if not 0 < len(name) <= 100 or not name.isprintable() or name != name.strip():
        raise UsageError(f"{what} {name[:50]!r} is no name: give 1 to 100 printable characters")
    return name


def login() -> str:
    """The login name of whoever runs this, or their number where they have none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _without_secrets(urls: str) -> str | None:
    """The addresses less user, password, query and fragment. A comma may also be part of a password.

    Raises UsageError where it can't be told what is the address.
    """
    parts = re.split(r",(?=\s*\w+://)", urls)
    if any(re.search(r"[?#].*@", url) for url in parts):
        raise UsageError("OPENAI_BASE_URL can't be read: give http://host:port/v1, and the key as OPENAI_API_KEY")
    bare = [re.sub(r"[?#].*", "", re.sub(r"^(\s*(?:\w+://)?).*@", r"\1", url)) for url in parts]
    if bare != parts:
        _say_once("OPENAI_BASE_URL: what is no address in it is left out; the key goes into OPENAI_API_KEY")
    return ",".join(bare) or None


@cache
def _say_once(text: str) -> None:
    log.warning(text)
