"""The installation that is broken, and what a user sees of it."""

import contextlib
import os
import re
import signal
import socket
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import psycopg
from redis import Redis

from simulation.process import Process
from tests.support import ROOT
from tests.support.installation import Installation, installed
from tests.support.ports import free_port
from tests.support.raw_server import Front
from weavegen.services import processes
from weavegen.services.redis import broker_url

SEEN_SECONDS = 15.0
"""A user must see what is wrong within this time."""
WRITING_SECONDS = 90.0
"""Within this time after a scene blocks must be written again."""
LOOKS: Mapping[str, tuple[str, ...]] = {
    "doctor": ("doctor",),
    "status": ("status",),
    "pool": ("pool", "--seconds", "0.2"),
    "top": ("top", "--once"),
    "up": ("up",),
    "sql": ("sql", "select 1"),
    "audit": ("audit",),
}
"""Commands with which a user looks. `viewer` and `metrics` are pages of the viewer, `log` the logs of all services."""


@dataclass(frozen=True)
class Scene:
    """One thing that goes wrong."""

    name: str
    breaks: Callable[["World"], None]
    sees: Mapping[str, str]
    """For each command or page: a regular expression of what it shows within SEEN_SECONDS."""
    mends: Callable[["World"], None] | None = None
    """What a person has to do; None: nothing, weavegen recovers by itself."""
    lost: int = 0
    """Traces that may fail."""


@dataclass
class Seen:
    """The result of a scene."""

    scene: Scene
    after: dict[str, float | None] = field(default_factory=dict)
    """Seconds until each look showed what is wrong; None: it did not."""
    shown: str = ""
    """The first line that showed it."""
    wrote_after: float | None = None
    """Seconds from the repair until blocks were written; None: they were not."""
    repeated: int = 0
    """Steps that were claimed again."""
    failed: int = 0
    """Traces that failed."""
    error: str = ""

    @property
    def passed(self) -> bool:
        seen = all(seconds is not None for seconds in self.after.values())
        return seen and self.wrote_after is not None and self.failed <= self.scene.lost and not self.error


class World:
    """An installation whose model server can be made to fail, with a job that never ends."""

    def __init__(self, installation: Installation, front: Front) -> None:
        self.installation, self.front = installation, front
        self.paused: list[psutil.Process] = []
        self.logged: dict[Path, int] = {}
        self.taken: socket.socket
        """A port that another program has taken."""

    def enqueue(self) -> None:
        files = [ROOT / "bootstraps" / name for name in ("tictactoe.py", "sums.py", "nano_practice.py")]
        self.installation.json("enqueue", *files, "-n", "2000", "--seed", "7")

    # ------------------------------------------------------------------------------------------------- to break

    def pid(self, name: str) -> int:
        return processes.registered(self.installation.config)[name].pid

    def kill(self, *names: str) -> None:
        for name in names:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid(name), signal.SIGKILL)

    def stop(self, *names: str) -> None:
        """Pause services with their children, as on a host that hangs."""
        for name in names:
            process = psutil.Process(self.pid(name))
            for each in [process, *process.children(recursive=True)]:
                each.suspend()
                self.paused.append(each)

    def proceed(self) -> None:
        for process in self.paused:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        self.paused.clear()

    def broker(self) -> Any:
        url = broker_url(self.installation.config)
        return contextlib.closing(Redis.from_url(url.replace("redis+socket://", "unix://")))

    # --------------------------------------------------------------------------------------------------- to look

    def look(self, name: str) -> str:
        """What a command or page shows."""
        if name in ("viewer", "metrics"):
            return self.page("/" if name == "viewer" else "/metrics")
        if name == "log":
            return self.new_log()
        done = self.installation.cli(*LOOKS[name], timeout=60)
        return f"{done.stdout}\n{done.stderr}\nexit code {done.returncode}"

    def new_log(self) -> str:
        """What the services have logged since `forget_log`."""
        return "\n".join(text[self.logged.get(path, 0) :] for path, text in self.logs().items())

    def forget_log(self) -> None:
        self.logged = {path: len(text) for path, text in self.logs().items()}

    def logs(self) -> dict[Path, str]:
        """The services' log files. Those of environments are removed while this runs."""
        found = {}
        for path in self.installation.config.logs.glob("*.log"):
            with contextlib.suppress(FileNotFoundError):
                found[path] = path.read_text(errors="replace")
        return found

    def page(self, path: str) -> str:
        url = processes.registered(self.installation.config)["viewer"].url
        try:
            with urllib.request.urlopen(f"{url}{path}", timeout=10) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError as error:
            return str(error)

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        return self.installation.sql(query)

    def count(self, query: str) -> int:
        return int(self.sql(f"select count(*) from {query}")[0][0])

    def writes(self, seconds: float = WRITING_SECONDS, blocks: int = 20) -> float | None:
        """Seconds until this many blocks were written. None: they were not within `seconds`."""
        began, first = time.monotonic(), None
        while time.monotonic() < began + seconds:
            with contextlib.suppress(psycopg.DatabaseError):
                now = self.count("blocks")
                first = now if first is None else first
                if now >= first + blocks:
                    return time.monotonic() - began
            time.sleep(0.25)
        return None


def play(world: World, scene: Scene) -> Seen:
    """Break, look, repair, and see whether traces go on."""
    seen = Seen(scene)
    if world.writes() is None:
        seen.error = "no blocks were written before the scene"
        return seen
    failed, repeated = world.count("traces where status = 'failed'"), world.count("steps where claims > 1")
    world.forget_log()
    began = time.monotonic()
    try:
        scene.breaks(world)
        look(world, seen, began)
        if scene.mends is not None:
            scene.mends(world)
    except Exception as error:  # noqa: BLE001  # the other scenes must be played
        seen.error = f"{type(error).__name__}: {error}"
    seen.wrote_after = world.writes()
    if seen.wrote_after is not None:
        seen.failed = world.count("traces where status = 'failed'") - failed
        seen.repeated = max(0, world.count("steps where claims > 1") - repeated)
    return seen


def look(world: World, seen: Seen, began: float) -> None:
    """Look again and again until each command and page has shown what is wrong, or the time is over."""
    open = dict(seen.scene.sees)
    while open:
        for name, pattern in list(open.items()):
            found = re.search(pattern, world.look(name), re.IGNORECASE)
            after = time.monotonic() - began
            if found is not None:
                seen.after[name] = after
                seen.shown = seen.shown or " ".join(found[0].split())
                del open[name]
            elif after > SEEN_SECONDS + 10:  # commands themselves take seconds on a busy machine
                seen.after[name] = None
                del open[name]


@contextlib.contextmanager
def broken_installation() -> Iterator[World]:
    """An installation that writes traces, with a model server that can be made to fail."""
    with tempfile.TemporaryDirectory() as folder:
        server = Process(Path(folder), "model", "--inter-token", "1")
        try:
            with Front(server.url) as front:
                settings = {"WEAVEGEN_MAX_ACTIVE": "12", "WEAVEGEN_VIEWER": str(free_port())}
                with installed(OPENAI_BASE_URL=front.url, **settings) as installation:
                    world = World(installation, front)
                    world.enqueue()
                    yield world
        finally:
            server.kill()
