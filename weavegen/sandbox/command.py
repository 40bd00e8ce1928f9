"""Runs one command in a box of its own whose root is an image, and waits for it."""

import contextlib
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from weavegen.config import Config
from weavegen.errors import EnvironmentFailure
from weavegen.sandbox.image_root import Root
from weavegen.sandbox.providers import Box, Limits, provider, start_main
from weavegen.sandbox.watch import BoxState, record_memory_kill, watching

SHOWN_CHARS = 8_000


@dataclass(frozen=True)
class Ran:
    output: str
    """The end of what it printed."""
    ended: str
    """Why it did not end by itself; empty: it did."""
    seconds: float


def run(
    config: Config,
    root: Root,
    argv: list[str],
    *,
    user: str,
    seconds: float,
    limits: Limits,
    name: str,
    network: str = "none",
) -> Ran:
    """Run a command until it ends or its time is up; then everything in the box is dead.

    `name`: of the folder for the box. Raises EnvironmentFailure if there can be no box.
    """
    sandbox, began, ended = provider(config.sandbox), time.monotonic(), ""
    root.prepare()
    workspace = config.workspaces / name
    workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=workspace) as scratch:
        box = Box(workspace, 0, Path(scratch, "output"), limits, network=network, temporary=True, root=root)
        handle = start_main(sandbox, "user", {"argv": argv, "user": user}, box)
        state = Path(scratch, "env-0.json")
        BoxState(handle, limits, str(root.changes)).write(state)
        with watching(state.parent):
            try:
                handle.wait(seconds)
            except EnvironmentFailure:
                ended = f"its time of {seconds:.0f} seconds was up"
            finally:
                record_memory_kill(state.with_suffix(".why"), handle, limits)
                sandbox.kill(handle)
        with contextlib.suppress(FileNotFoundError):
            ended = state.with_suffix(".why").read_text()
        with box.log.open("rb") as output:
            output.seek(max(box.log.stat().st_size - 4 * SHOWN_CHARS, 0))
            text = output.read().decode(errors="replace")[-SHOWN_CHARS:]
    return Ran(text, ended, time.monotonic() - began)
