"""Migrates the database's schema with alembic, from the package `migrations`."""

import importlib.util
from pathlib import Path

from alembic import command
from alembic.config import Config as Alembic
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy.exc import OperationalError

from weavegen.errors import UsageError
from weavegen.sandbox.starting_files import FOLDERS
from weavegen.store import examples as store
from weavegen.store.session import unpooled_engine


def migrate(url: str) -> None:
    """Migrate the database at `url`. A new one begins with the examples that come with weavegen."""
    is_new = current(url) is None
    upgrade(url)
    if is_new:
        from weavegen.search import examples  # 0.4 s of imports, which other commands need not wait for

        with unpooled_engine(url).begin() as connection:
            store.load(connection, examples.read(FOLDERS["bootstraps"] / "examples"))


def upgrade(url: str) -> None:
    """Migrate the database at `url` to the newest schema. Raises UsageError."""
    settings = _alembic()
    settings.attributes["url"] = url
    try:
        command.upgrade(settings, "head")
    except CommandError:
        check(url)  # its message names the database's version
        raise
    except OperationalError as error:
        reason = " ".join(str(error.orig).split())[:300]
        raise UsageError(f"the migration failed: {reason}; stop what uses the database and try again") from None


def newest() -> str | None:
    """Return the revision that this version of weavegen needs; None without migrations."""
    return ScriptDirectory.from_config(_alembic()).get_current_head()


def current(url: str) -> str | None:
    """Return the revision of the database at `url`; None if it was never migrated."""
    with unpooled_engine(url).connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def check(url: str) -> None:
    """Raise UsageError if the database has another revision than this version of weavegen needs."""
    revision, needed = current(url), newest()
    if revision != needed:
        raise UsageError(
            f"the database has schema version {revision or 'none'}, this weavegen needs {needed}: "
            "run `weavegen up` to migrate it, or use the version of weavegen that made it"
        )


def _alembic() -> Alembic:
    spec = importlib.util.find_spec("migrations")
    if spec is None or spec.origin is None:
        raise UsageError("the package `migrations` is missing: install weavegen again")
    settings = Alembic()
    settings.set_main_option("script_location", str(Path(spec.origin).parent).replace("%", "%%"))
    return settings
