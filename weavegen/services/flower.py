"""Flower, Celery's page about workers and tasks. A convenience: `up` starts it, and nothing depends on it."""

import sys
from collections.abc import Mapping

NAME = "flower"
SETTINGS = {
    # Without a password it listens on loopback alone, where any page of a browser can still post to it.
    "FLOWER_READ_ONLY": "true",
    # 20,000 take 120 MB and show the last 20 seconds at 1,000 tasks a second (docs/flower.md); PostgreSQL has all.
    "FLOWER_MAX_TASKS": "20000",
    "FLOWER_PURGE_OFFLINE_WORKERS": "600",
    "FLOWER_TASKS_COLUMNS": "name,args,state,result,received,runtime,worker,exception",
}
"""Settings of Flower's own that differ from its defaults, as environment variables. Those that are set win."""


def command(port: int, address: str = "127.0.0.1") -> list[str]:
    """Quiet: its banner names the broker's address, which may hold a password."""
    return [
        *(sys.executable, "-m", "celery", "-q", "-A", "tasks", "flower"),
        *(f"--address={address}", f"--port={port}", "--logging=warning"),
    ]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with our settings of Flower where it says nothing of them."""
    return SETTINGS | dict(environ)
