"""The database: one engine per process."""

from functools import cache
from typing import Any

import msgspec
import sqlalchemy as sa

from weavegen import config
from weavegen.services.postgres import database_url

CONNECTIONS = 40
"""Per process at most; a worker's threads hold one each while they write."""


def make_engine(url: str, **kw: Any) -> sa.Engine:
    """An engine whose JSON goes through msgspec, which is several times faster than the standard library's."""
    return sa.create_engine(
        url,
        json_serializer=lambda value: msgspec.json.encode(value).decode(),
        json_deserializer=msgspec.json.decode,
        pool_size=CONNECTIONS,
        max_overflow=0,
        **kw,
    )


@cache
def single() -> sa.Engine:
    """The same engine for single statements: each commits itself, which spares two round trips."""
    return engine().execution_options(isolation_level="AUTOCOMMIT")


@cache
def engine() -> sa.Engine:
    """The engine of this process, made on first use: a forked worker must not inherit its parent's connections."""
    return make_engine(database_url(config.load()))
