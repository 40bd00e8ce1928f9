"""Helpers that declare tables and columns."""

import enum
from collections.abc import Callable
from datetime import datetime
from types import UnionType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from weavegen.sql import array_text

METADATA = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
TYPES: dict[Any, Any] = {
    str: sa.Text,
    int: sa.BigInteger,
    float: sa.Double,
    bool: sa.Boolean,
    bytes: sa.LargeBinary,
    datetime: sa.DateTime(timezone=True),
}


class Numbers(sa.types.TypeDecorator[list[Any]]):
    """A PostgreSQL array of numbers, sent as text."""

    impl = ARRAY
    cache_ok = True

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[list[Any] | None], str | None]:
        def process(value: list[Any] | None) -> str | None:
            return None if value is None else array_text(value)

        return process


def table(name: str, comment: str, *parts: sa.Column[Any] | sa.Constraint | sa.Index) -> sa.Table:
    """A table. It has an identity column `id`, unless other columns are its primary key."""
    key = [sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True, comment="Identity.")]
    if any(isinstance(part, sa.Column) and part.primary_key for part in parts):
        key = []
    return sa.Table(name, METADATA, *key, *parts, comment=comment)


def column(name: str, type: Any, comment: str, *, nullable: bool = False, **kw: Any) -> sa.Column[Any]:
    """A column of one of TYPES, of `TYPE | None` where it may be null, of an enumeration, or of an SQL type."""
    checks = []
    if isinstance(type, UnionType):
        type, nullable = type.__args__[0], True
    elif isinstance(type, enum.EnumMeta):
        values = ", ".join(map("'{}'".format, type))
        type, checks = str, [sa.CheckConstraint(f"{name} in ({values})", name=name)]
    return sa.Column(name, TYPES.get(type, type), *checks, comment=comment, nullable=nullable, **kw)


def reference(
    name: str, comment: str, *, to: str = "", ondelete: str | None = "CASCADE", use_alter: bool = False, **kw: Any
) -> sa.Column[Any]:
    """A foreign key to the table `to`; without it, to the one in the column's name: trace_id refers to traces.

    It may be null where rows are not deleted with the other row, or with `nullable`.
    """
    target = to or f"{name.removesuffix('_id').removesuffix('s')}s"
    foreign_key = sa.ForeignKey(f"{target}.id", ondelete=ondelete, use_alter=use_alter)
    return sa.Column(name, sa.BigInteger, foreign_key, comment=comment, **{"nullable": ondelete != "CASCADE"} | kw)


def json(name: str, comment: str, *, nullable: bool = False) -> sa.Column[Any]:
    """A JSON column that stores Python's None as SQL's null and not as a JSON null."""
    return sa.Column(name, JSONB(none_as_null=True), comment=comment, nullable=nullable)


def now(name: str, comment: str) -> sa.Column[Any]:
    return column(name, datetime, comment, server_default=sa.func.now())
