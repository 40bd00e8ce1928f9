"""An installation full of secrets, with servers that repeat what they receive."""

import contextlib
import http.client
import json
import os
import pty
import secrets
import select
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from celery import Celery

from tests.support.installation import Installation
from weavegen.services import redis as broker

NAMES = ("key", "database", "reader", "broker", "model", "discord", "unrelated")
SECRETS = {name: f"hush{name}{secrets.token_hex(12)}" for name in NAMES}
HOSTILE = (
    "\x1b]0;OWNED\x07\x1b]52;c;T1dORUQ=\x07\x1b]8;;http://evil\x1b\\link\x1b[2J\x9b31m\u202eevil\u2066\x08\x7f"
    "\r[red]x[/red][link=http://evil]y[/link]"
)
"""Sequences for title, clipboard, link, clear screen, a C1 colour, reversed text, backspace; and rich's markup."""


class Echo(BaseHTTPRequestHandler):
    """A model server in front of the simulated one. In a failing mode its answer repeats the request."""

    protocol_version = "HTTP/1.1"
    port: int = 0
    upstream: int = 0
    mode: str = "serve"
    """One of serve, 401, 500."""

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
            said = f"{key} {'x' * 350} bad credentials: {key}"  # the second key is near where texts are cut
            status, data = int(type(self).mode), json.dumps({"error": {"message": said}}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Planted(Installation):
    """An installation in which every setting contains a secret."""

    monitor: list[str]
    """All bytes that were sent to Redis."""

    def send(
        self, task: str, *arguments: Any, queue: str = "control", serializer: str = "json", **options: Any
    ) -> None:
        """Send a task, as any program that reaches the broker can."""
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
        with contextlib.suppress(OSError):  # EIO: no process has the other end open
            while time.monotonic() < deadline:
                if select.select([parent], [], [], 0.2)[0]:
                    written += os.read(parent, 65_536)
        os.close(parent)
        process.kill()
        process.wait()
        return written.decode(errors="surrogateescape")
