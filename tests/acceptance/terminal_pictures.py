"""Creates the pictures of docs/terminal.md: `python -m tests.acceptance.terminal_pictures FOLDER`.

They show a job of a separate installation, as `weavegen watch` and `weavegen top` draw it.
"""

import dataclasses
import io
import re
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console, Group

from tests.support import TICTACTOE
from tests.support.installation import installed
from weavegen.cli import top, watch
from weavegen.cli.display import HarmlessConsole
from weavegen.database import Connection
from weavegen.store import urls
from weavegen.store.session import pooled

LARGEST = 60_000
"""The largest size of a picture in bytes."""
SECONDS = 25.0
"""Seconds over which rates are computed."""


def console(width: int, height: int) -> Console:
    """A console that records what is drawn."""
    return HarmlessConsole(
        file=io.StringIO(), record=True, force_terminal=True, highlight=False, width=width, height=height
    )


def save(console: Console, path: Path, title: str) -> None:
    # Without the fonts that a reader's browser would fetch from other servers, and without rich's own address.
    svg = re.sub(r"@font-face \{.*?\}|<!--.*?-->", "", console.export_svg(title=title), flags=re.DOTALL)
    assert len(svg) < LARGEST, f"{path} would have {len(svg)} bytes"
    path.write_text(svg)
    sys.stdout.write(f"{path}: {len(svg)} bytes\n")


def draw(conn: Connection, job: int, folder: Path) -> None:
    """Poll the job until it is well under way and has rates."""
    job_reader, fleet_reader = watch.JobReader(conn, job), top.FleetReader(conn)
    until = time.monotonic() + SECONDS
    while True:
        now, fleet = job_reader.now(), fleet_reader.read()
        if (time.monotonic() > until and now.job.row.progress > 0.3) or not now.job.row.open:
            break
        time.sleep(1)
    assert now.job.row.open, "the job ended before it could be drawn: give it more traces"
    screen = console(100, 22)
    screen.print(watch.picture(now, job_reader, screen))
    save(screen, folder / "terminal-watch.svg", f"weavegen watch {job}")
    fleet = dataclasses.replace(fleet, surveyed=fleet_reader.servers())
    screen = console(128, 24)
    screen.print(Group(*top.parts(fleet, (128, 24))))
    save(screen, folder / "terminal-top.svg", "weavegen top")


def pictures(folder: Path) -> None:
    """Write terminal-watch.svg and terminal-top.svg. Takes two minutes."""
    folder.mkdir(parents=True, exist_ok=True)
    with installed(WEAVEGEN_USER="you", WEAVEGEN_HOST="here") as installation:
        words = ("--ticks", "20", "--seed", "1", "--name", "games")
        job = int(installation.json("enqueue", TICTACTOE, "-n", "96", *words)["job"])
        installation.json("enqueue", TICTACTOE, "-n", "400", "--ticks", "20", "--name", "held")
        installation.json("pause", str(job + 1))
        db = pooled(urls.database_url(installation.config))
        with pytest.MonkeyPatch.context() as patch, db.connect() as conn:
            for name, value in installation.environ.items():
                patch.setenv(name, value)
            draw(conn, job, folder)
        db.close()


if __name__ == "__main__":
    pictures(Path(sys.argv[1]))
