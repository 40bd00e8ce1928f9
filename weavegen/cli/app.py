"""What all commands share: the app, the option --json, printing of results and errors, database connections."""

import atexit
import errno
import functools
import inspect
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, NoReturn

import msgspec
import typer
from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.protocol import is_renderable
from rich.text import Text

from weavegen import config as configuration
from weavegen.cli import display
from weavegen.database import Connection
from weavegen.errors import UsageError, WeavegenError
from weavegen.services import model_server, postgres, schema
from weavegen.store.session import unpooled
from weavegen.text import harmless, harmless_json
from weavegen.version import __version__

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Writes long LLM-agent traces in bulk.\n\nFirst: `weavegen up`, then "
    "`weavegen run bootstraps/tictactoe.py -n 8 --ticks 12`.",
)
out = display.console()

SIMULATED_DATA = "SIMULATED model data: good for trying a pipeline, not for training"
ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space, or set WEAVEGEN_HOME to a larger disk"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "set WEAVEGEN_HOME to a folder you can write to"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "raise the limit of open files (ulimit -n)"),
    **dict.fromkeys((errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG), "give another path"),
    errno.ENOMEM: "free some memory",
    errno.EIO: "check the disk",
}
"""What to do about an error of the operating system, by errno."""
DATABASE_FAILS = ("08", "53", "57", "58", "XX")
"""SQLSTATE classes of errors that the statement did not cause: connection, resources, shutdown, system."""
QUERY_SECONDS = 600.0
"""Seconds that an SQL condition of --where may take, in commands that have no option for it."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
N = Annotated[int, typer.Option("-n", "--count", help="Number of traces of each file.")]
Seed = Annotated[int | None, typer.Option(help="Random seed: the same seed and server give the same traces.")]
User = Annotated[str | None, typer.Option(help="Your name in records. Default: WEAVEGEN_USER, else the login name.")]


@dataclass(frozen=True)
class Result:
    """What a command prints."""

    value: Any
    """Printed with --json: dataclasses, msgspec structs, rows of the database or plain data."""
    shown: RenderableType | Iterable[RenderableType] = ()
    """Printed without --json: lines and tables. An iterator is not read with --json."""
    code: int = 0
    """The exit code."""


def command(
    name: str | None = None, *, group: typer.Typer = app
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """A decorator: registers a function as a command that prints what the function returns."""
    return lambda function: group.command(name)(prints(function))


def prints(function: Callable[..., Any]) -> Callable[..., None]:
    """Adds the option --json to a command, and prints what it returns.

    It returns a Result; or a value or rows, printed as a table or JSON; or None if it prints its own output. A
    function with a parameter `json` also gets the option's value. A parameter that is a dataclass becomes one option
    for each of its fields.
    """
    parameters = dict(inspect.signature(function).parameters)
    wants_json = parameters.pop("json", None) is not None
    groups: dict[str, Any] = {}
    options = []
    for name, each in parameters.items():
        if is_dataclass(each.annotation):
            groups[name] = each.annotation
            options += [
                inspect.Parameter(field.name, each.KEYWORD_ONLY, default=field.default, annotation=field.type)
                for field in fields(each.annotation)
            ]
        else:
            options.append(each.replace(kind=each.KEYWORD_ONLY))
    options.append(inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json))

    @functools.wraps(function)
    def run(*arguments: Any, json: bool = False, **options: Any) -> None:
        for name, group in groups.items():
            options[name] = group(**{field.name: options.pop(field.name) for field in fields(group)})
        result = function(*arguments, **options, **({"json": json} if wants_json else {}))
        if result is not None:
            print_result(result if isinstance(result, Result) else Result(result, display.table(result)), json)

    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def print_result(result: Result, json: bool) -> None:
    """Print a result. Raises typer.Exit with its exit code, unless that is 0."""
    if json:
        print_json(result.value)
    elif is_renderable(result.shown):
        print_part(result.shown)  # type: ignore[arg-type]
    else:
        for part in result.shown:  # type: ignore[union-attr]
            print_part(part)
    if result.code:
        raise typer.Exit(result.code)


def print_part(part: RenderableType) -> None:
    """Print a line or a table. Lines are not wrapped, and their markup is not interpreted."""
    out.print(part, markup=False, highlight=False, soft_wrap=isinstance(part, str | Text))


def print_json(value: Any) -> None:
    """Print a value as indented JSON. Rows of the database are objects."""
    text = msgspec.json.format(msgspec.json.encode(rows_as_objects(value)), indent=2).decode()
    sys.stdout.write(harmless_json(text) + "\n")


def rows_as_objects(value: Any) -> Any:
    """A value whose named tuples are dictionaries. msgspec would write them as arrays."""
    value = value._asdict() if hasattr(value, "_asdict") else value
    if isinstance(value, dict):
        return {name: rows_as_objects(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [rows_as_objects(item) for item in value]
    if is_dataclass(value):
        return {field.name: rows_as_objects(getattr(value, field.name)) for field in fields(value)}
    return value


def version(wanted: bool) -> None:
    if wanted:
        out.print(f"weavegen {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run the command line. Expected errors become one line and an exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # once it is over, Ctrl-C no longer changes the code
    try:
        try:
            code = app(standalone_mode=False)
        finally:
            flush()
    except WeavegenError as error:
        fail(str(error), 2 if isinstance(error, UsageError) else 1)
    except typer.Abort:
        fail("stopped", 130)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        if (problem := resource_problem(error)) is not None:
            fail(problem)
        if hasattr(error, "format_message"):  # an error of typer or click about the command line
            fail(str(error.format_message()))
        raise
    sys.exit(code if isinstance(code, int) else 0)


def flush() -> None:
    """Write the rest of the output. Where that fails, Python would print a traceback after the command's error."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def resource_problem(error: Exception) -> str | None:
    """What the machine or the database lacks, and what to do, in one line; None for any other error."""
    if hasattr(error, "sqlstate"):  # an error of psycopg
        if error.sqlstate == "22003":
            return f"a number is too large ({error})"
        if not (error.sqlstate or "08").startswith(DATABASE_FAILS):
            return None
        advice = ADVICE[errno.ENOSPC] if "No space left" in str(error) else "see `weavegen doctor`"
        return f"the database fails ({error}): {advice}"
    if isinstance(error, UnicodeError):
        return f"{error}: give text in UTF-8"
    if not isinstance(error, OSError) or error.errno not in ADVICE:
        return f"TMPDIR: {error}: free some space" if hasattr(error, "sqlite_errorname") else None
    return f"{error.filename or 'this command'}: {error.strerror}: {ADVICE[error.errno]}"


def fail(message: str, code: int = 2) -> NoReturn:
    """Print one line to standard error and exit. No message: typer has printed the help instead."""
    sys.stderr.write(f"weavegen: {harmless(' '.join(message.split()))}\n" if message else "")
    sys.exit(code)


@contextmanager
def reading() -> Iterator[Connection]:
    """A connection to the database. Starts the embedded database temporarily if it is not running."""
    with postgres.running(configuration.load()) as url, unpooled(url).connect() as conn:
        schema.check(conn)
        yield conn


@contextmanager
def writing() -> Iterator[Connection]:
    """As `reading`; changes are committed at the end, unless an exception is raised."""
    with reading() as conn:
        yield conn
        conn.commit()


@contextmanager
def progress_bar(description: str) -> Iterator[Callable[..., None]]:
    """A bar on standard error, if that is a terminal. Yields a function of done, total and a description."""
    console = display.console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(harmless(description), total=None)
        try:
            yield lambda done, total, text=description: progress.update(
                task, completed=done, total=total, description=harmless(text)
            )
        except KeyboardInterrupt:
            raise typer.Abort from None


def is_simulated() -> bool:
    """Whether the installation's model is the simulation."""
    return model_server.simulated(configuration.load())


def write_file(path: Any, text: str, option: str) -> None:
    """Write a file that an option names. Raises UsageError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{option}: {path} can't be written ({error.strerror}): give another file") from None
