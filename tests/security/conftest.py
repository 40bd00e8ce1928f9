"""An installation full of secrets, with servers that repeat what they are told."""

import contextlib
import http.client
import json
import os
import pty
import secrets
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import redis as client
from celery import Celery

from tests.acceptance.conftest import ROOT, Installation, installed
from tests.conftest import administration
from weavegen.config import Config
from weavegen.services import postgres
from weavegen.services import redis as broker

NAMES = ("key", "database", "reader", "broker", "model", "discord", "unrelated")
SECRETS = {name: f"hush{name}{secrets.token_hex(12)}" for name in NAMES}
HOSTILE = (
    "\x1b]0;OWNED\x07\x1b]52;c;T1dORUQ=\x07\x1b]8;;http://evil\x1b\\link\x1b[2J\x9b31m\u202eevil\u2066\x08\x7f"
    "\r[red]x[/red][link=http://evil]y[/link]"
)
"""Title, clipboard, link, clear the screen, a C1 colour, text turned round, backspace; rich's markup."""


class Echo(BaseHTTPRequestHandler):
    """A model server in front of the simulated one. Told to fail, it answers with what it was sent."""

    protocol_version = "HTTP/1.1"
    port: int = 0
    upstream: int = 0
    mode: str = "serve"
    """serve, 401 or 500."""

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer()

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if type(self).mode == "serve":
            connection = http.client.HTTPConnection("127.0.0.1", type(self).upstream, timeout=30)
            connection.request(self.command, self.path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            status, data = answer.status, answer.read()
            connection.close()
        else:
            key = self.headers["Authorization"]
            said = f"{key} {'x' * 1850} bad credentials: {key}"  # the second where texts are cut
            status, data = int(type(self).mode), json.dumps({"error": {"message": said}}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Planted(Installation):
    """An installation whose every setting holds a secret."""

    monitor: list[str]
    """All that was said to Redis."""

    def send(
        self, task: str, *arguments: Any, queue: str = "control", serializer: str = "json", **options: Any
    ) -> None:
        """Send a task as any program can that reaches the broker."""
        with Celery(broker=broker.broker_url(self.config), set_as_current=False) as producer:
            producer.send_task(task, args=arguments, kwargs=options, queue=queue, serializer=serializer)

    def terminal(self, *arguments: str | Path, timeout: float = 60, **environ: str) -> str:
        """What a command writes to a terminal."""
        parent, child = pty.openpty()
        process = subprocess.Popen(
            [Path(sys.executable).parent / "weavegen", *map(str, arguments)],
            env=self.environ | {"TERM": "xterm-256color", "COLUMNS": "300"} | environ,
            cwd=self.home,
            stdin=child,
            stdout=child,
            stderr=child,
            start_new_session=True,
        )
        os.close(child)
        written, deadline = b"", time.monotonic() + timeout
        with contextlib.suppress(OSError):  # EIO: nobody holds the other end any more
            while time.monotonic() < deadline:
                if select.select([parent], [], [], 0.2)[0]:
                    written += os.read(parent, 65_536)
        os.close(parent)
        process.kill()
        process.wait()
        return written.decode(errors="surrogateescape")


@pytest.fixture(scope="session")
def echo() -> Iterator[type[Echo]]:
    """The class whose `mode` decides what the model server does."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Echo.port = server.server_address[1]
    yield Echo
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def redis_with_password(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a broker of the user's own."""
    folder = tmp_path_factory.mktemp("redis")
    (folder / "redis.conf").write_text(
        f'port 0\nunixsocket {folder}/redis.sock\nunixsocketperm 700\nsave ""\nrequirepass {SECRETS["broker"]}\n'
    )
    process = subprocess.Popen([broker.binary(), folder / "redis.conf"], stdout=subprocess.DEVNULL, cwd=folder)
    while not (folder / "redis.sock").exists():
        assert process.poll() is None
        time.sleep(0.02)
    yield f"redis+socket://:{SECRETS['broker']}@{folder}/redis.sock"
    process.terminate()
    process.wait()


@pytest.fixture(scope="session")
def planted(
    config: Config,
    postgres_url: str,
    redis_with_password: str,
    echo: type[Echo],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Planted]:
    """Workers with a database, a broker, a model server and a Discord that all have passwords."""
    ready = tmp_path_factory.mktemp("sim") / "ready"
    sim = subprocess.Popen(
        [sys.executable, "-m", "simulation", "--port", "0", "--ready-file", ready],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with administration(config) as connection:
        connection.execute("create database planted")
    address = f"/planted?host={postgres.sockets(config)}"  # it asks for no password, but is sent one
    while not ready.exists():
        assert sim.poll() is None
        time.sleep(0.02)
    echo.upstream = json.loads(ready.read_text())["port"]
    monitor: list[str] = []
    listener = client.Redis(
        unix_socket_path=redis_with_password.partition("@")[2], password=SECRETS["broker"], socket_timeout=None
    )
    over = threading.Event()

    def listen() -> None:
        with contextlib.suppress(client.RedisError, OSError, ValueError), listener.monitor() as commands:
            for command in commands.listen():
                monitor.append(str(command))
                if over.is_set():
                    return

    threading.Thread(target=listen, daemon=True).start()
    try:
        for one in installed(
            DATABASE_URL=f"postgresql://{postgres.SUPERUSER}:{SECRETS['database']}@{address}",
            WEAVEGEN_READER_URL=f"postgresql://{postgres.READER}:{SECRETS['reader']}@{address}",
            CELERY_BROKER_URL=redis_with_password,
            OPENAI_BASE_URL=f"http://me:{SECRETS['model']}@127.0.0.1:{echo.port}/v1",
            OPENAI_API_KEY=SECRETS["key"],
            WEAVEGEN_DISCORD_TOKEN=SECRETS["discord"],
            WEAVEGEN_DISCORD_URL="http://127.0.0.1:1",
            SOME_SECRET=SECRETS["unrelated"],
        ):
            installation = Planted(one.home)
            installation.environ = one.environ
            installation.monitor = monitor
            yield installation
    finally:
        over.set()
        with contextlib.suppress(client.RedisError):
            listener.ping()
        sim.terminate()
        sim.wait()
        with administration(config) as connection:
            connection.execute("drop database planted with (force)")
