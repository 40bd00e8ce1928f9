"""The database's schema: brought up to date by alembic, from the folder `migrations/` of the installation."""

import importlib.util
from pathlib import Path

from alembic import command
from alembic.config import Config as Alembic
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from weavegen.errors import UsageError


def upgrade(url: str) -> None:
    """Brings the database at `url` to the newest schema. Nothing happens where it is there already."""
    settings = _alembic()
    settings.attributes["url"] = url
    try:
        command.upgrade(settings, "head")
    except CommandError:
        check(url)  # says which version the database is at
        raise
    except OperationalError as error:
        reason = " ".join(str(error.orig).split())[:300]
        raise UsageError(
            f"the database could not be migrated: {reason}; stop what uses it and try again"
        ) from None


def newest() -> str | None:
    """The revision that this version of weavegen works with; None while there are no migrations."""
    return ScriptDirectory.from_config(_alembic()).get_current_head()


def current(url: str) -> str | None:
    """The revision that the database at `url` is at; None: it was never migrated."""
    engine = create_engine(url, poolclass=NullPool, connect_args={"connect_timeout": 5})
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def check(url: str) -> None:
    """Raises UsageError where the database is at another revision than this version of weavegen works with."""
    found, wanted = current(url), newest()
    if found != wanted:
        raise UsageError(
            f"the database is at schema version {found or 'none'}, this weavegen works with {wanted}: "
            "run `weavegen up` to migrate it, or use the version of weavegen that made it"
        )


def _alembic() -> Alembic:
    spec = importlib.util.find_spec("migrations")
    if spec is None or spec.origin is None:
        raise UsageError("the folder `migrations` is missing from this installation: install weavegen again")
    settings = Alembic()
    settings.set_main_option("script_location", str(Path(spec.origin).parent).replace("%", "%%"))
    return settings
