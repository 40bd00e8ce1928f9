"""Helpers that declare tables and columns."""

import datetime
import enum
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import DeclarativeBase, mapped_column

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


def array_text(numbers: Iterable[float | None]) -> str:
    """A PostgreSQL array as text, for psycopg is slow with a million numbers. NaN and None become null."""
    return f"{{{msgspec.json.encode(list(numbers))[1:-1].decode()}}}"


class Numbers(sa.types.TypeDecorator[list[Any]]):
    """A PostgreSQL array of numbers, sent as text."""

    impl = ARRAY
    cache_ok = True

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[list[Any] | None], str | None]:
        def process(value: list[Any] | None) -> str | None:
            return None if value is None else array_text(value)

        return process


class Base(DeclarativeBase):
    metadata = sa.MetaData(naming_convention=NAMING)
    type_annotation_map = {
        str: sa.Text,
        int: sa.BigInteger,
        float: sa.Double,
        datetime.datetime: sa.DateTime(timezone=True),
        dict[str, Any]: JSONB,
    }


def table(model: type[Base]) -> sa.Table:
    """The table of a model, for statements that need no objects."""
    assert isinstance(model.__table__, sa.Table)
    return model.__table__


def column(comment: str, **kw: Any) -> Any:
    return mapped_column(comment=comment, **kw)


def key(comment: str = "Identity.") -> Any:
    return mapped_column(sa.BigInteger, sa.Identity(), primary_key=True, comment=comment)


def reference(
    target: str, comment: str, *, ondelete: str | None = "CASCADE", use_alter: bool = False, **kw: Any
) -> Any:
    foreign_key = sa.ForeignKey(target, ondelete=ondelete, use_alter=use_alter)
    return mapped_column(sa.BigInteger, foreign_key, comment=comment, **kw)


def one_of(name: str, column: str, values: type[enum.StrEnum]) -> sa.CheckConstraint:
    return sa.CheckConstraint(f"{column} in ({', '.join(repr(str(value)) for value in values)})", name=name)


def json(comment: str, **kw: Any) -> Any:
    """A JSON column that stores Python's None as SQL's null and not as a JSON null."""
    return mapped_column(JSONB(none_as_null=True), comment=comment, **kw)


def now(comment: str) -> Any:
    return mapped_column(comment=comment, server_default=sa.func.now())
