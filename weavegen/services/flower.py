"""The command of Flower, the web page about Celery's workers and tasks. No other part depends on it."""

import sys
from collections.abc import Mapping

NAME = "flower"
SETTINGS = {
    # It has no password. It listens on loopback only, but any web page in a browser could post to it.
    "FLOWER_READ_ONLY": "true",
    # 20,000 tasks take 120 MB, and are 20 seconds at 1,000 tasks a second (docs/flower.md).
    "FLOWER_MAX_TASKS": "20000",
    "FLOWER_PURGE_OFFLINE_WORKERS": "600",
    "FLOWER_TASKS_COLUMNS": "name,args,state,result,received,runtime,worker,exception",
}
"""Environment variables that change Flower's defaults. Variables that are set already have priority."""


def command(port: int, address: str = "127.0.0.1") -> list[str]:
    """Return the command. It is quiet because Flower's banner shows the broker's URL, perhaps with a password."""
    return [
        *(sys.executable, "-m", "celery", "-q", "-A", "tasks", "flower"),
        *(f"--address={address}", f"--port={port}", "--logging=warning"),
    ]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` with SETTINGS, of which those in `environ` have priority."""
    return SETTINGS | dict(environ)
