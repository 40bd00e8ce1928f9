"""The database: one engine per process."""

from functools import cache
from typing import Any

import msgspec
import sqlalchemy as sa

from weavegen import config
from weavegen.config import Config
from weavegen.store.urls import READER, database_url, reader_url

MAX_CONNECTIONS = 40
"""Per process. Each thread of a worker holds one while it writes."""


def make_engine(url: str, **kw: Any) -> sa.Engine:
    """An engine that reads JSON by msgspec, several times faster than the standard library."""
    return sa.create_engine(
        url,
        json_deserializer=msgspec.json.decode,
        pool_size=MAX_CONNECTIONS,
        max_overflow=0,
        **kw,
    )


def unpooled_engine(url: str | sa.URL) -> sa.Engine:
    """An engine for few connections, whose server may be away: each is tried for five seconds, and not kept."""
    return sa.create_engine(url, poolclass=sa.NullPool, connect_args={"connect_timeout": 5})


def reader_engine(config: Config, url: sa.URL, seconds: float, **kw: Any) -> sa.Engine:
    """An engine for the database at `url` that can only read, and whose statements may take so many seconds.

    In a database of the user's own without WEAVEGEN_READER_URL it is logged in as that user, in the reader's role: a
    query can switch back to the user, but only inside its read-only transaction.
    """
    login = reader_url(config, url)
    options = f"-c default_transaction_read_only=on -c statement_timeout={max(1, int(seconds * 1000))}"
    options += f" -c role={READER}" if login == url else ""
    return sa.create_engine(login, connect_args={"connect_timeout": 5, "options": options}, **kw)


@cache
def single() -> sa.Engine:
    """The engine of this process for single statements: each commits itself, which saves two round trips."""
    return engine().execution_options(isolation_level="AUTOCOMMIT")


@cache
def engine() -> sa.Engine:
    """The engine of this process. It is made on first use: a forked worker must not inherit connections."""
    return make_engine(database_url(config.load()))
