"""Settings of an installation, read from the environment once per process."""

import hashlib
import logging
import os
import pwd
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path

import msgspec

from weavegen.errors import UsageError

log = logging.getLogger(__name__)

SIMULATED_MODEL = "weavegen-sim"
"""The only model that the simulated server lists. What it writes is labelled as simulated."""

NO_KEY = "EMPTY"
"""The key that is sent to a server that needs none, as in vLLM's own examples."""

PERSONAL = frozenset({"WEAVEGEN_HOME", "WEAVEGEN_USER"})
"""Variables of the person at the command line: other commands do not take them from what `up` stored."""
SECRET = re.compile(r"KEY|TOKEN")
"""Names of variables that hold secrets."""
FINGERPRINT = re.compile(r"(^| )#[0-9a-f]{8}$")
"""What a shown setting ends with in place of a secret."""


@dataclass(frozen=True)
class Config:
    """Where things are. Every field has an environment variable; the defaults need none."""

    home: Path
    """WEAVEGEN_HOME: embedded services, workspaces and logs. `load` follows links in it: all spellings are one home."""
    database_url: str | None = field(repr=False)
    """DATABASE_URL; None: the embedded PostgreSQL."""
    broker_url: str | None = field(repr=False)
    """CELERY_BROKER_URL; None: the embedded Redis."""
    model_url: str | None
    """OPENAI_BASE_URL, one or several, separated by commas; None: what `up` starts. A password or a query in it is
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
    """WEAVEGEN_DISCORD_TOKEN: token of the bot that connects channels of traces to Discord; None: no Discord."""
    discord_url: str
    """WEAVEGEN_DISCORD_URL: base of Discord's REST API."""
    user: str = "unknown"
    """WEAVEGEN_USER: the name under which jobs are enqueued and servers are lent; the login name by default."""
    pool_key: str = field(default=NO_KEY, repr=False)
    """WEAVEGEN_POOL_KEY: the key for servers that were added to the pool, in place of OPENAI_API_KEY."""
    reader_url: str | None = field(default=None, repr=False)
    """WEAVEGEN_READER_URL: the database of DATABASE_URL with a user who can only read, for `weavegen sql`. The
    embedded PostgreSQL needs none."""
    drain: float = 20.0
    """WEAVEGEN_DRAIN: seconds that a worker has for its steps in flight when it is told to end."""
    flower_port: int = 5555
    """WEAVEGEN_FLOWER: the port on which `up` starts Flower, or a free port if it is taken; 0: no Flower."""
    viewer_port: int = 8991
    """WEAVEGEN_VIEWER: the same for the viewer."""
    model: str = "nano"
    """WEAVEGEN_MODEL: what `up` starts if there is no OPENAI_BASE_URL: `nano` (the small model that comes with
    weavegen, on the CPU), a folder with another one, `sim` (the simulation), or `none`."""
    prices: str = ""
    """WEAVEGEN_PRICES: prices of a million tokens, as MODEL=PROMPT/SAMPLED,...; the ledger shows the cost."""
    vllm: str | None = None
    """WEAVEGEN_VLLM: a Python that has vLLM, for `up --vllm`; None: this one, or that of scripts/vllm.sh."""

    @property
    def price_table(self) -> dict[str, tuple[float, float]]:
        """By model: the prices of a prompt token and of a sampled token. Raises UsageError."""
        table = {}
        for entry in filter(None, map(str.strip, self.prices.split(","))):
            model, _, prices = entry.rpartition("=")
            try:
                prompt, sampled = (float(price) / 1e6 for price in prices.split("/"))
            except ValueError:
                prompt = sampled = -1.0
            if not model or not (0 <= prompt < 1 and 0 <= sampled < 1):
                raise UsageError(f"WEAVEGEN_PRICES has {entry!r:.60}: give MODEL=PROMPT/SAMPLED for a million tokens")
            table[model] = prompt, sampled
        return table

    @property
    def runtime(self) -> Path:
        """A folder for sockets: unix socket paths may be 107 bytes long at most, and `home` may be deeper."""
        if len(os.fsencode(self.home)) <= 60:
            return self.home / "run"
        digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]
        # Not in TMPDIR, which differs between shells: all commands must find the same sockets.
        return Path(f"/tmp/weavegen-{os.getuid()}-{digest}")

    @property
    def workspaces(self) -> Path:
        return self.home / "workspaces"

    @property
    def stored(self) -> Path:
        """The file with the settings that `up` stored."""
        return self.home / "settings.json"

    def environ(self) -> dict[str, str]:
        """The environment variables from which another process reads the same configuration."""
        values = {name: getattr(self, field) for name, field in VARIABLES.items()}
        return {name: "" if value is None else str(value) for name, value in values.items()}

    @property
    def logs(self) -> Path:
        return self.home / "logs"


OTHER_NAMES = {
    "database_url": "DATABASE_URL",
    "broker_url": "CELERY_BROKER_URL",
    "model_url": "OPENAI_BASE_URL",
    "api_key": "OPENAI_API_KEY",
    "flower_port": "WEAVEGEN_FLOWER",
    "viewer_port": "WEAVEGEN_VIEWER",
}
"""Fields of Config whose variable is not WEAVEGEN_ with the field's name."""
VARIABLES = {OTHER_NAMES.get(field.name, f"WEAVEGEN_{field.name.upper()}"): field.name for field in fields(Config)}
"""Environment variables, with the field of Config that each one sets."""


def load(environ: Mapping[str, str] = os.environ) -> Config:
    """The configuration that `environ` describes. Raises UsageError on a value that can't be read.

    A variable that is not in `environ` has the value that `up` stored in the home, so that every command and every
    worker of an installation has the same settings. An empty variable has its default. Secrets are not stored.
    """
    home = Path(os.path.realpath(environ.get("WEAVEGEN_HOME") or ".weavegen"))
    for name, value in stored_settings(home / "settings.json").items():
        if name in environ or name in PERSONAL:
            continue
        if not FINGERPRINT.search(value):
            environ = {**environ, name: value}
        elif not SECRET.search(name):
            raise UsageError(f"this installation was started with {name}={value.split()[0]}: set {name} to it")

    def number(name: str, default: float) -> float:
        text = environ.get(name, "")
        try:
            value = float(text) if text else default
        except ValueError:
            raise UsageError(f"{name}={text!r} is not a number: unset it or give one") from None
        if not 0 < value < 1e9:
            raise UsageError(f"{name}={text!r} is out of range: give a number above 0")
        return value

    def port(name: str, default: int) -> int:
        text = environ.get(name, "").strip() or str(default)
        if not (text.isascii() and text.isdigit() and int(text) < 65_536):
            raise UsageError(f"{name}={text[:20]!r} is not a port: give 1 to 65535, or 0 to leave it out")
        return int(text)

    def secret(name: str) -> str | None:
        text = environ.get(name, "").strip()
        # The HTTP libraries refuse such a header with an error that repeats it.
        if not (text.isascii() and text.isprintable()):
            raise UsageError(f"{name} holds characters that can't be sent: give printable ASCII")
        return text or None

    config = Config(
        home=home,
        database_url=environ.get("DATABASE_URL") or None,
        broker_url=environ.get("CELERY_BROKER_URL") or None,
        model_url=_without_secrets(environ.get("OPENAI_BASE_URL") or ""),
        api_key=secret("OPENAI_API_KEY") or NO_KEY,
        host=environ.get("WEAVEGEN_HOST") or socket.gethostname(),
        max_active=max(1, int(number("WEAVEGEN_MAX_ACTIVE", 64))),
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
        prices=environ.get("WEAVEGEN_PRICES") or "",
        vllm=environ.get("WEAVEGEN_VLLM") or None,
    )
    _ = config.price_table
    return config


def stored_settings(file: Path) -> dict[str, str]:
    """The variables that `up` stored. Raises UsageError if the file is invalid."""
    try:
        settings = msgspec.json.decode(file.read_bytes(), type=dict[str, str])
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    except msgspec.MsgspecError:
        raise UsageError(f"{file} is invalid: remove it, then set your variables and run `weavegen up`") from None
    return {name: settings[name] for name in VARIABLES if name in settings}


def shown_settings(config: Config) -> dict[str, str]:
    """The settings as people may see them: in place of a secret, its fingerprint (SHA-256, 8 digits)."""
    return {name: _shown(name, value) for name, value in config.environ().items()}


def differing(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The names of shown settings that both have, with different values."""
    return [name for name in now if before.get(name, now[name]) != now[name]]


def _shown(name: str, value: str) -> str:
    if SECRET.search(name):
        return "" if value in ("", NO_KEY) else _fingerprint(value)
    bare = re.sub(r"(?i)([?&]\w*(?:passw(?:or)?d|secret|token)=)[^&\s]*", r"\1***", value)
    bare = re.sub(r"(://[^:/@]*):.*@", r"\1:***@", bare)
    return value if bare == value else f"{bare} {_fingerprint(value)}"


def _fingerprint(secret: str) -> str:
    return f"#{hashlib.sha256(secret.encode()).hexdigest()[:8]}"


def person(name: str, what: str) -> str:
    """A person's name, if it can be stored and shown. Raises UsageError. `what`: where the name was given."""
    if not 0 < len(name) <= 100 or not name.isprintable() or name != name.strip():
        raise UsageError(f"{what} {name[:50]!r} is not a name: give 1 to 100 printable characters")
    return name


def login() -> str:
    """The login name of whoever runs this, or their user id if they have none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _without_secrets(urls: str) -> str | None:
    """The addresses without user, password, query and fragment. Raises UsageError if they can't be recognised."""
    parts = re.split(r",(?=\s*\w+://)", urls)
    if any(re.search(r"[?#].*@", url) for url in parts):
        raise UsageError("OPENAI_BASE_URL can't be read: give http://host:port/v1, and the key as OPENAI_API_KEY")
    bare = [re.sub(r"[?#].*", "", re.sub(r"^(\s*(?:\w+://)?).*@", r"\1", url)) for url in parts]
    if bare != parts:
        _say_once("OPENAI_BASE_URL: only the addresses are used; the key goes into OPENAI_API_KEY")
    return ",".join(bare) or None


@cache
def _say_once(text: str) -> None:
    log.warning(text)
