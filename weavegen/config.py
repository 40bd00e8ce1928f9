"""Settings of an installation, read from the environment once per process."""

import hashlib
import os
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from weavegen.errors import UsageError


@dataclass(frozen=True)
class Config:
    """Where things are. Every field has an environment variable; the defaults need none."""

    home: Path
    """WEAVEGEN_HOME: embedded services, workspaces and logs."""
    database_url: str | None
    """DATABASE_URL; None: the embedded PostgreSQL."""
    broker_url: str | None
    """CELERY_BROKER_URL; None: the embedded Redis."""
    model_url: str | None
    """OPENAI_BASE_URL, one or several, with commas between; None: the simulation that `up` starts."""
    api_key: str
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

    return Config(
        home=Path(environ.get("WEAVEGEN_HOME") or ".weavegen").absolute(),
        database_url=environ.get("DATABASE_URL") or None,
        broker_url=environ.get("CELERY_BROKER_URL") or None,
        model_url=environ.get("OPENAI_BASE_URL") or None,
        api_key=environ.get("OPENAI_API_KEY") or "EMPTY",
        host=environ.get("WEAVEGEN_HOST") or socket.gethostname(),
        max_active=int(number("WEAVEGEN_MAX_ACTIVE", 64)),
        lease=number("WEAVEGEN_LEASE", 15.0),
        sandbox=environ.get("WEAVEGEN_SANDBOX") or "bubblewrap",
        discord_token=environ.get("WEAVEGEN_DISCORD_TOKEN") or None,
        discord_url=environ.get("WEAVEGEN_DISCORD_URL") or "https://discord.com/api/v10",
    )
