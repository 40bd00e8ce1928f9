"""PostgreSQL by psycopg: statements, connections that are kept for reuse, and rows as named tuples."""

import contextlib
import copy
import itertools
import re
import select
import threading
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, cast

import msgspec
import psycopg
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL
from psycopg.types.json import Jsonb, set_json_loads

WAIT_SECONDS = 30.0
"""Time to wait for a free connection before raising OperationalError."""


PARAMETER = re.compile(r"(?<![:\w]):([a-z_]\w*)")
CAST = re.compile(r"cast\(:(\w+) as ([a-z ]+(?:\[\])?)\)")


def json(value: Any) -> Jsonb:
    """A value as JSON. psycopg encodes it when it sends it: raises UnicodeEncodeError then, as for any text."""
    return Jsonb(value, dumps=msgspec.json.encode)


def array_text(numbers: Iterable[float | None]) -> str:
    """A PostgreSQL array as text, because psycopg is slow with a million numbers. NaN and None become null."""
    return f"{{{msgspec.json.encode(list(numbers))[1:-1].decode()}}}"


SENT: dict[str, Callable[[Any], Any]] = {"jsonb": json} | dict.fromkeys(
    ("integer[]", "bigint[]", "real[]", "double precision[]"), array_text
)
"""Conversions of parameters for psycopg, by SQL type; other types are sent unchanged. None is always SQL's null."""


class Statement(SQL):
    """A statement with :name for a parameter."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sent = {name: SENT[to] for name, to in CAST.findall(text) if to in SENT}
        super().__init__(PARAMETER.sub(r"%(\1)s", text.replace("%", "%%")))

    def encoded(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters as psycopg sends them."""
        values = dict(parameters)
        for name, encode in self.sent.items():
            if values.get(name) is not None:
                values[name] = encode(values[name])
        return values


@cache
def row_type(*names: bytes | None) -> Any:
    """The class of rows with these columns. A repeated or invalid name becomes _ and the column's number."""
    return namedtuple("Row", [(name or b"").decode() for name in names], rename=True)


def named_rows(cursor: Any) -> Any:
    """Named tuples. psycopg's own do not accept two columns with the same name."""
    result = cursor.pgresult
    return row_type(*(result.fname(number) for number in range(result.nfields if result else 0)))._make


class Result(psycopg.Cursor[Any]):
    """What a statement returned. Iterating over it gives its rows."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> "Result":
        """Execute a Statement with its parameters by name, or any query of psycopg."""
        if isinstance(query, Statement):
            params = query.encoded(params or {})
        return super().execute(query, params, **options)

    all = psycopg.Cursor.fetchall
    first = psycopg.Cursor.fetchone

    def one(self) -> Any:
        """The only row. Raises LookupError if there is no row or more than one."""
        if (row := self.one_or_none()) is None:
            raise LookupError("the query gave no row")
        return row

    def one_or_none(self) -> Any:
        """The only row; None: there is none. Raises LookupError if there are several."""
        row, more = self.fetchone(), self.fetchone()
        if more is not None:
            raise LookupError(f"the query gave {self.rowcount} rows")
        return row

    def scalar_one(self) -> Any:
        """The first column of the only row. Raises LookupError if there is no row or more than one."""
        return self.one()[0]

    def scalar_one_or_none(self) -> Any:
        """The first column of the only row; None: there is no row. Raises LookupError if there are several."""
        return None if (row := self.one_or_none()) is None else row[0]

    def scalars(self) -> list[Any]:
        """The first column."""
        return [row[0] for row in self]

    def mappings(self) -> list[dict[str, Any]]:
        """The rows as dicts by column name, which may be any text."""
        names = [column.name for column in self.description or ()]
        return [dict(zip(names, row, strict=True)) for row in self]


class Connection(psycopg.Connection[Any]):
    """A connection. Its statements begin a transaction, unless it is in autocommit mode."""

    database: "Database"
    """The database that it is a connection to."""
    _names = itertools.count(1)

    def execute(self, query: Any, params: Any = None, **options: Any) -> Result:
        """Execute a Statement with its parameters by name, or any query of psycopg. Raises psycopg.Error."""
        return cast(Result, super().execute(query, params, **options))

    def execute_each(self, statement: Statement, rows: Sequence[Mapping[str, Any]]) -> None:
        """Execute a statement with the parameters of each row, all in one round trip. Raises psycopg.Error."""
        self.cursor().executemany(statement, [statement.encoded(row) for row in rows])

    def stream(self, statement: Statement, parameters: Mapping[str, Any], rows: int) -> Iterator[Any]:
        """The rows of a statement, fetched `rows` at a time, in the current transaction or a new one."""
        with self.cursor(f"stream_{next(self._names)}") as cursor:
            cursor.itersize = rows
            yield from cursor.execute(statement, statement.encoded(parameters))


class Database:
    """A database and its connections, for the threads of one process. A forked child must not use it."""

    def __init__(self, url: str, most: int, *, keep: bool = True, autocommit: bool = False, **parameters: Any) -> None:
        """`most`: connections at a time. `keep`: whether they stay open. `parameters`: libpq's, added to the URL's."""
        self.url, self.keep, self.autocommit = url, keep, autocommit
        self.only_read = "default_transaction_read_only=on" in parameters.get("options", "")
        self._parameters = parameters
        self.kept: dict[str, Any] = {}
        """Data that other modules keep as long as this object exists."""
        self._idle: list[Connection] = []
        """A stack: the one that was used last is taken first, because it has the most prepared statements."""
        self._free = threading.BoundedSemaphore(most)

    def with_autocommit(self, autocommit: bool) -> "Database":
        """The same connections, with or without autocommit."""
        same = copy.copy(self)
        same.autocommit = autocommit
        return same

    @contextlib.contextmanager
    def connect(self) -> Iterator[Connection]:
        """A connection; what the block does not commit is rolled back. Raises psycopg.Error."""
        if not self._free.acquire(timeout=WAIT_SECONDS):
            raise psycopg.OperationalError(f"no connection to the database was free for {WAIT_SECONDS:g} s")
        try:
            connection = self._take()
            try:
                yield connection
            except psycopg.errors.ReadOnlySqlTransaction as error:
                if self.only_read:
                    raise
                connection.close()
                self.close()  # the address may lead to the new primary server by now
                raise psycopg.OperationalError(f"it takes no changes, as a standby server: {error}") from None
            finally:
                self._give_back(connection)
        finally:
            self._free.release()

    @contextlib.contextmanager
    def begin(self) -> Iterator[Connection]:
        """A connection in a transaction, which is committed at the end of the block. Raises psycopg.Error."""
        with self.connect() as connection:
            yield connection
            connection.commit()

    def close(self) -> None:
        """Close the connections that are not in use."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _take(self) -> Connection:
        with contextlib.suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if not _ended(connection):
                    if connection.autocommit != self.autocommit:
                        connection.autocommit = self.autocommit
                    return connection
                connection.close()
        return self.open()

    def open(self) -> Connection:
        """A new connection, which the caller closes. Raises psycopg.Error."""
        connection = Connection.connect(
            self.url, autocommit=self.autocommit, row_factory=named_rows, cursor_factory=Result, **self._parameters
        )
        set_json_loads(msgspec.json.decode, connection)
        connection.database = self
        return connection

    def _give_back(self, connection: Connection) -> None:
        with contextlib.suppress(psycopg.Error):
            if connection.info.transaction_status != TransactionStatus.IDLE:
                connection.rollback()
            if self.keep and not connection.closed:
                self._idle.append(connection)
                return
        connection.close()


def _ended(connection: Connection) -> bool:
    """Whether the server has ended an idle connection, as when it was restarted: then it has sent something."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
