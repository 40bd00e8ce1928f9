"""Which database weavegen uses: URLs as PostgreSQL's own clients take them. Pure: nothing is connected to."""

import re
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from weavegen.config import Config
from weavegen.errors import UsageError

DATABASE = "weavegen"
SUPERUSER = "weavegen"
"""Superuser of the embedded server."""
READER = "weavegen_reader"
"""The role of `weavegen sql`. The first migration grants what it may read."""
SCHEME = re.compile(r"^(\w+)(\+\w+)?(?=://)")
"""Other programs' URLs name a driver too: postgresql+psycopg://..."""


def database_url(config: Config) -> str:
    """URL of the database. Raises UsageError where DATABASE_URL is invalid."""
    if config.database_url is None:
        return embedded_url(config, DATABASE)
    return _checked("DATABASE_URL", config.database_url)


def reader_url(config: Config, url: str) -> str:
    """URL of the database at `url` for a login that can only read. Raises UsageError.

    Returns `url` itself for a database of the user's own where WEAVEGEN_READER_URL is not set.
    """
    place = parts(url)
    if place.get("user") == SUPERUSER and place.get("host") == str(sockets(config)):
        return embedded_url(config, str(place["dbname"]), READER)
    return url if config.reader_url is None else _checked("WEAVEGEN_READER_URL", config.reader_url)


def embedded_url(config: Config, database: str, user: str = SUPERUSER) -> str:
    """URL of a database of the embedded server."""
    return f"postgresql://{user}@/{database}?host={quote(str(sockets(config)), safe='/')}"


def parts(url: str) -> dict[str, str]:
    """What a URL says, by libpq's names: user, password, host, dbname and others."""
    return {name: str(value) for name, value in conninfo_to_dict(url).items()}


def sockets(config: Config) -> Path:
    """The folder of the embedded server's socket. Raises UsageError where clients can't use its path."""
    folder = config.runtime / "postgres"
    if "," in str(folder):  # PostgreSQL's clients separate hosts by commas
        raise UsageError(f"{config.home} has a comma in its path: set WEAVEGEN_HOME to a folder without one")
    return folder


def _checked(variable: str, text: str) -> str:
    if (scheme := SCHEME.match(text)) is not None and scheme[1] not in ("postgresql", "postgres"):
        raise UsageError(f"{variable} names {scheme[1]}: weavegen needs PostgreSQL, postgresql://...")
    url = SCHEME.sub("postgresql", text)
    try:
        if scheme is not None and re.fullmatch(r"[\d,]*", parts(url).get("port", "")):
            return url
    except psycopg.ProgrammingError:
        pass
    raise UsageError(f"{variable} can't be read: give postgresql://user:password@host:port/name")
