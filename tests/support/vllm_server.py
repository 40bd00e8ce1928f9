"""A real vLLM on loopback, started by scripts/vllm.sh: for tests and benchmarks."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import msgspec

from tests.support import ROOT
from weavegen.pool import metrics
from weavegen.pool.http import Http

SCRIPT = ROOT / "scripts" / "vllm.sh"
START = 180.0
"""Maximum seconds until a server is ready. Two free cores take about 30."""
SLOTS = 8
"""Maximum number of concurrent requests of the shared server."""


class Server:
    """One vLLM on a port of its own, which stays the same after a restart."""

    def __init__(self, model: Path, log: Path, flags: Sequence[str]) -> None:
        """Start the server; `wait` returns when it is ready.

        `log` is the path of its log, `flags` are arguments in addition to the script's own.
        """
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.root = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.root}/v1"
        self.model, self.log, self._flags = model, log, list(flags)
        self._http = Http("EMPTY", 60)
        self._start()

    def _start(self) -> None:
        command = ["bash", str(SCRIPT), "serve", str(self.model), str(self.port), *self._flags]
        with self.log.open("ab") as log:
            # A process group of its own, because vLLM has several processes.
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        # Kills the group when its input ends: in `kill`, and also if pytest itself is killed.
        self._guard = subprocess.Popen(
            ["bash", "-c", 'read -r; kill -KILL -- "-$1" 2>/dev/null', "guard", str(self.process.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def wait(self) -> None:
        """Wait until the server responds.

        Raises RuntimeError with the end of the log if the server exits or does not respond in time.
        """
        deadline = time.monotonic() + START
        while not self.healthy():
            dead = self.process.poll()
            if dead is not None or time.monotonic() > deadline:
                self.kill()
                end = "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])
                problem = f"not ready after {START:.0f} s" if dead is None else f"ended with {dead}"
                raise RuntimeError(f"vLLM {problem}; the end of its log:\n{end}")
            time.sleep(0.25)

    def healthy(self) -> bool:
        """Whether the server responds."""
        try:
            with urlopen(f"{self.root}/health", timeout=5) as answer:
                return int(answer.status) == 200
        except OSError:
            return False

    def kill(self) -> None:
        """Kill all its processes at once, like a crash. A second call does nothing."""
        assert self._guard.stdin is not None
        if not self._guard.stdin.closed:
            self._guard.stdin.close()
        self._guard.wait()
        self.process.wait()
        self._http.close()

    def restart(self) -> None:
        """Restart the server on the same port, with an empty cache, and wait until it is ready."""
        self.kill()
        self._start()
        self.wait()

    def stop_answering(self) -> None:
        """Stop (SIGSTOP) all its processes: connections stay open without a response. `go_on` resumes them."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Undo `stop_answering`."""
        os.killpg(self.process.pid, signal.SIGCONT)

    def post(self, path: str, **body: object) -> Any:
        """Send JSON and decode the JSON response, for requests that ModelClient cannot make. Raises HTTPError."""
        data = msgspec.json.encode({"model": "tiny", **body})
        request = Request(self.root + path, data, {"Content-Type": "application/json"})
        with urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def metrics(self) -> metrics.Metrics:
        """The server's metrics."""
        return metrics.read(self.url, self._http)

    def detokenize(self, ids: Sequence[int]) -> str:
        """Text of `ids`, as the server decodes them."""
        return str(self.post("/detokenize", tokens=list(ids))["prompt"])


StartServer = Callable[..., Server]
Forward = Callable[[Sequence[Sequence[int]]], dict[str, list[list[float]]]]
