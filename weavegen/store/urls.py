"""Which database weavegen uses: URLs as SQLAlchemy takes them. Pure: nothing is connected to."""

from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from weavegen.config import Config
from weavegen.errors import UsageError

DATABASE = "weavegen"
SUPERUSER = "weavegen"
"""Superuser of the embedded server."""
READER = "weavegen_reader"
"""The role of `weavegen sql`. The first migration grants what it may read."""


def database_url(config: Config) -> str:
    """URL of the database, with the driver psycopg 3. Raises UsageError where DATABASE_URL is invalid."""
    if config.database_url is None:
        return embedded_url(config, DATABASE)
    return _parse("DATABASE_URL", config.database_url).render_as_string(hide_password=False)


def reader_url(config: Config, url: URL) -> URL:
    """URL of the database at `url` for a login that can only read. Raises UsageError.

    Returns `url` itself for a database of the user's own where WEAVEGEN_READER_URL is not set.
    """
    if url.username == SUPERUSER and url.query.get("host") == str(sockets(config)):
        return url.set(username=READER)
    return url if config.reader_url is None else _parse("WEAVEGEN_READER_URL", config.reader_url)


def embedded_url(config: Config, database: str) -> str:
    """URL of a database of the embedded server. Without `+psycopg`, psql takes it too."""
    return f"postgresql+psycopg://{SUPERUSER}@/{database}?host={quote(str(sockets(config)), safe='/')}"


def sockets(config: Config) -> Path:
    """The folder of the embedded server's socket. Raises UsageError where clients can't use its path."""
    folder = config.runtime / "postgres"
    if "," in str(folder):  # PostgreSQL's clients separate hosts by commas
        raise UsageError(f"{config.home} has a comma in its path: set WEAVEGEN_HOME to a folder without one")
    return folder


def _parse(variable: str, text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise UsageError(f"{variable} can't be read: give postgresql://user:password@host:port/name") from None
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise UsageError(f"{variable} names {url.get_backend_name()}: weavegen needs PostgreSQL, postgresql://...")
    return url.set(drivername="postgresql+psycopg")
