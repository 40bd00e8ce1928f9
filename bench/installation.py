"""An installation of its own for a benchmark. It is always taken down at the end."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kombu import pools

from weavegen import config
from weavegen.services import fleet
from weavegen.store.session import database, single


@contextmanager
def home() -> Iterator[Path]:
    """An empty folder that boxes can read."""
    with tempfile.TemporaryDirectory(prefix="weavegen-bench-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def installation(folder: Path, **environ: str) -> Iterator[config.Config]:
    """Start everything in a folder, with these environment variables; this process uses it too.

    Unless the variables say otherwise, the model is the SIMULATED one.
    """
    before = dict(os.environ)
    os.environ |= {"WEAVEGEN_HOME": str(folder), "WEAVEGEN_MODEL": "sim", **environ}
    try:
        settings = config.load()
        try:
            fleet.up(settings)
            yield settings
        finally:
            database().close()
            fleet.down(settings)
            # This process may start the same installation again, with the same address of Redis.
            pools.reset()  # type: ignore[no-untyped-call]
    finally:
        database.cache_clear()
        single.cache_clear()
        os.environ.clear()
        os.environ |= before
