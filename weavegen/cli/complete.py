"""Shell completion: what Tab offers for numbers of jobs and traces, names of settings, and formats.

It starts no service, and offers nothing where there is no database.
"""

import contextlib
from collections.abc import Iterator

import msgspec
import psycopg

from weavegen import config as configuration
from weavegen import sql
from weavegen.errors import WeavegenError
from weavegen.kernel.settings import WRITTEN, BlockSettings, Settings
from weavegen.services import postgres
from weavegen.store import urls
from weavegen.store.session import read_only
from weavegen.text import harmless

MAX_NUMBERS = 50
"""Numbers that are offered, the newest first."""
TIMEOUT_SECONDS = 1
"""Time limit of the query."""


def job_numbers(incomplete: str) -> list[tuple[str, str]]:
    return list(numbers("complete_jobs", incomplete))


def trace_numbers(incomplete: str) -> list[tuple[str, str]]:
    return list(numbers("complete_traces", incomplete))


def numbers(query: str, incomplete: str) -> Iterator[tuple[str, str]]:
    """Pairs of a number and its description, for the numbers that begin with `incomplete`."""
    if not incomplete.isdigit() and incomplete:
        return
    with contextlib.suppress(psycopg.Error, WeavegenError, OSError):
        config = configuration.load()
        if config.database_url is None and postgres.find(config) is None:
            return
        with read_only(config, urls.database_url(config), TIMEOUT_SECONDS, keep=False).connect() as conn:
            for number, description in conn.execute(sql.text(f"cli/{query}"), (incomplete, MAX_NUMBERS)):
                yield number, harmless(" ".join(description.split()))


def settings_names(incomplete: str) -> list[str]:
    """KEY= or TYPE.KEY=, for --set."""
    kind, dot, _ = incomplete.partition(".")
    names = [field.name for field in msgspec.structs.fields(BlockSettings if dot else Settings)]
    if dot:
        names = [f"{kind}.{name}" for name in names] if kind in WRITTEN else []
    return [f"{name}=" for name in names if name.startswith(incomplete)]


def block_types(incomplete: str) -> list[str]:
    from weavegen.search.documents import RETRIEVABLE

    return [str(type) for type in RETRIEVABLE if type.startswith(incomplete)]


def export_formats(incomplete: str) -> list[str]:
    from weavegen.exports import FORMATS

    return [name for name in FORMATS if name.startswith(incomplete)]
