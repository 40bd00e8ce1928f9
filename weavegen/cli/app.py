"""What all commands share: the app, options, how errors and results are printed."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import msgspec
import sqlalchemy as sa
import typer

from weavegen import __version__
from weavegen import config as configuration
from weavegen.errors import UsageError, WeavegenError
from weavegen.monitoring import display

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Writes long LLM-agent traces in bulk.\n\nFirst: `weavegen up`, then "
    "`weavegen run bootstraps/tictactoe.py -n 8 --ticks 12`.",
)
out = display.console()

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
N = Annotated[int, typer.Option("-n", "--count", help="Traces of each file.")]
Seed = Annotated[int | None, typer.Option(help="Equal seeds give equal traces from an equal server.")]


def version(wanted: bool) -> None:
    if wanted:
        out.print(f"weavegen {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run the command line; errors of use become one line."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("weavegen.nano.http").setLevel(logging.INFO)  # where it is reached
    try:
        code = app(standalone_mode=False)
    except UsageError as error:
        fail(str(error))
    except WeavegenError as error:
        fail(str(error), 1)
    except typer.Abort:
        fail("stopped", 130)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        if hasattr(error, "format_message"):  # what typer and click say of a command line
            fail(str(error.format_message()))
        raise
    sys.exit(code if isinstance(code, int) else 0)


def fail(message: str, code: int = 2) -> NoReturn:
    sys.stderr.write(f"weavegen: {display.harmless(' '.join(message.split()))}\n")
    sys.exit(code)


def print_json(value: Any) -> None:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    sys.stdout.write(display.harmless_json(text) + "\n")


@contextmanager
def reading() -> Iterator[sa.Connection]:
    """A connection to the database, which is started for the time of the command if it does not run."""
    from weavegen.services import postgres, schema
    from weavegen.store.session import make_engine

    with postgres.running(configuration.load()) as url:
        schema.check(url)
        engine = make_engine(url)
        try:
            with engine.connect() as conn:
                yield conn
        finally:
            engine.dispose()
