"""A SIMULATED server in a process of its own, which tests and benchmarks kill and restart."""

import json
import subprocess
import sys
import time
from pathlib import Path


class Process:
    """Serves from `start` to `kill`, always on the same port."""

    def __init__(self, folder: Path, name: str, *options: str) -> None:
        """Start the server.

        `name` is the name of its ready file in `folder`, `options` are those of `weavegen sim`.
        """
        self._ready, self._options, self.port = folder / f"{name}.ready", options, 0
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def alive(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Start the server and wait until it is ready. Raises RuntimeError if it exits."""
        self._ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "simulation", "--ready-file", str(self._ready), *self._options]
        self._process = subprocess.Popen([*command, "--port", str(self.port)])
        while not self._ready.exists():
            if self._process.poll() is not None:
                raise RuntimeError(f"the simulated server ended with {self._process.returncode}")
            time.sleep(0.02)
        ready = json.loads(self._ready.read_text())
        self.url, self.port = str(ready["url"]), int(ready["port"])

    def kill(self) -> None:
        """Send SIGKILL, if the server is alive."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
