"""The database that this process uses, and other connections to databases."""

import os
from functools import cache
from typing import Any

from weavegen import config
from weavegen.config import Config
from weavegen.database import Database
from weavegen.errors import UsageError
from weavegen.store.urls import READER, database_url, reader_url

MAX_CONNECTIONS = 40
"""Per process. Each thread of a worker holds one while it writes."""
LOST = {"connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "tcp_user_timeout": 60_000}
"""libpq's: a connection to a host that has gone without a word ends after a minute instead of after hours."""
TRY_SECONDS = 5
"""Timeout of a connection to a server that may be down."""


def pooled(url: str, **kw: Any) -> Database:
    """A database whose connections are kept. `kw`: as Database takes it."""
    return Database(url, MAX_CONNECTIONS, **{**LOST, **kw})


def unpooled(url: str) -> Database:
    """A database whose server may be down: each connection is tried for five seconds, and not kept."""
    return pooled(url, keep=False, connect_timeout=TRY_SECONDS)


def read_only(config: Config, url: str, seconds: float, most: int = MAX_CONNECTIONS, **kw: Any) -> Database:
    """The database at `url`, through a login that can only read and whose statements may take `seconds`.

    In a database of the user's own without WEAVEGEN_READER_URL it is logged in as that user, in the reader's role: a
    query can switch back to the user, but only inside its read-only transaction. Raises UsageError.
    """
    if not seconds <= 2_000_000:  # PostgreSQL counts milliseconds in 31 bits
        raise UsageError(f"a query can't have {seconds:g} seconds: give at most 2,000,000")
    login = reader_url(config, url)
    options = f"-c default_transaction_read_only=on -c statement_timeout={max(1, int(seconds * 1000))}"
    options += f" -c role={READER}" if login == url else ""
    return Database(login, most, **{**LOST, "connect_timeout": TRY_SECONDS, "options": options, **kw})


@cache
def single() -> Database:
    """The database of this process for single statements: each commits itself, which saves two round trips."""
    return database().with_autocommit(True)


@cache
def database() -> Database:
    """The database of this process, made on first use. A forked child makes its own."""
    return pooled(database_url(config.load()))


for inherited in (single, database):
    os.register_at_fork(after_in_child=inherited.cache_clear)
