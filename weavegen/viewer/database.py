"""The viewer's read-only connections to the database."""

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from weavegen.config import Config
from weavegen.store.urls import READER, reader_url

MAX_CONNECTIONS = 8
"""Of the reader. Further requests wait for a connection."""
QUERY_SECONDS = 20
"""Time limit of a query."""


def reader(config: Config, url: str) -> sa.Engine:
    """Read-only connections to the database at `url`. Each statement is a transaction."""
    own = make_url(url)
    login = reader_url(config, own)
    options = f"-c default_transaction_read_only=on -c statement_timeout={QUERY_SECONDS * 1000}"
    if login == own:  # WEAVEGEN_READER_URL is not set for the user's own database
        options += f" -c role={READER}"
    return sa.create_engine(
        login,
        pool_size=MAX_CONNECTIONS,
        max_overflow=0,
        pool_pre_ping=True,
        connect_args={"connect_timeout": 5, "options": options},
        isolation_level="AUTOCOMMIT",
    )
