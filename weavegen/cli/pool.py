"""Commands about the model servers: who is in the pool, who lends what, who used it."""

import contextlib
import dataclasses
import enum
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import sqlalchemy as sa
import typer
from rich.table import Table

from weavegen import config as configuration
from weavegen.cli.app import Json, app, out, print_json, reading
from weavegen.config import person
from weavegen.errors import UsageError
from weavegen.monitoring import display

pool = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")
app.add_typer(pool, name="pool")

Url = Annotated[str, typer.Argument(metavar="URL", help="Base URL, such as http://gpu7:8000/v1.")]
NAMES = {"job_id": "job", "job": "name", "enqueued_by": "user"}
"""Headings of columns of pool_usage, where they are not just its names."""


class By(enum.StrEnum):
    """What the ledger is summed up by."""

    SERVER = "server"
    OWNER = "owner"
    JOB = "job"
    USER = "user"


@pool.callback()
def show(
    context: typer.Context,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to look, for the rates.")] = 1.0,
    json: Json = False,
) -> None:
    """Show the model servers: what runs and waits there, how full the cache is, what it saves, tokens a second.

    With a command: lend servers to the pool, take them back, see who lends and who used them.

    Example: weavegen pool --seconds 5
    """
    if context.invoked_subcommand is not None:
        return
    from weavegen.pool.survey import survey
    from weavegen.store import reports, servers

    with reading() as conn:
        members = servers.members(conn, configuration.load())
        traces = reports.traces_by_server(conn)
    members.require()
    rows = survey(list(members.keys), members.keys, seconds)
    if json:
        own = ({"owner": members.owners.get(row.url), "traces": traces.get(row.url, 0)} for row in rows)
        print_json([dataclasses.asdict(row) | more for row, more in zip(rows, own, strict=True)])
    else:
        out.print(display.pool_table(rows, traces, members.owners))
    raise typer.Exit(0 if any(row.state != "away" for row in rows) else 1)


@pool.command()
def add(
    url: Url,
    owner: Annotated[
        str | None, typer.Option(help="Who lends it; WEAVEGEN_USER or the login name by default.")
    ] = None,
    json: Json = False,
) -> None:
    """Lend a model server to the pool. The workers use it within seconds, and some running traces move to it.

    It must serve the pool's model, at an address that all workers reach. Give its key, if it wants one, to workers
    and to this command as WEAVEGEN_POOL_KEY: OPENAI_API_KEY is not sent to it.

    Example: weavegen pool add http://gpu7:8000/v1 --owner ada
    """
    from weavegen.pool.served import address, check_newcomer
    from weavegen.store import servers

    config = configuration.load()
    base, who = address(url), config.user if owner is None else person(owner, "--owner")
    with changing() as conn:
        members, models = servers.members(conn, config), servers.models_in_use(conn)
        conn.rollback()
        model = check_newcomer(base, config.pool_key, members.keys, models)
        moved = servers.add(conn, base, who, model, list(members.keys))
    if json:
        print_json({"url": base, "owner": who, "model": model, "traces": moved})
    else:
        out.print(f"{base} is in the pool, lent by {who}: {moved} running traces move to it", markup=False)


@pool.command()
def remove(url: Url, json: Json = False) -> None:
    """Take a server that was added out of the pool. It is sent nothing more within seconds.

    What it is at ends there, and its traces go on with other servers. Servers of OPENAI_BASE_URL stay until that
    is changed.

    Example: weavegen pool remove http://gpu7:8000/v1
    """
    from weavegen.pool.served import address
    from weavegen.store import servers

    base = address(url)
    with changing() as conn:
        before = servers.members(conn, config := configuration.load())
        if base in before.keys.keys() - before.owners.keys():
            raise UsageError(f"{base} is one of OPENAI_BASE_URL: take it out there, and start the workers again")
        traces = servers.remove(conn, base)
        left = servers.members(conn, config).keys
    if json:
        print_json({"url": base, "traces": traces, "servers": len(left)})
        return
    go_on = f"{traces} running traces go on with others" if left else f"{traces} running traces wait for another"
    out.print(f"{base} has left the pool: {go_on}; what it is at ends there", markup=False)


@pool.command()
def load(
    name: Annotated[str, typer.Argument(help="What it is called: jobs ask for it with --model NAME.")],
    folder: Annotated[Path, typer.Argument(help="A LoRA adapter as PEFT writes it, where all servers find it.")],
) -> None:
    """Have all servers of the pool load an adapter and serve it beside their model, while they go on.

    vLLM does that with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment. nano also takes
    a folder with whole weights.

    Example: weavegen pool load round-1 models/round-1
    """
    from weavegen.pool import adapters

    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder: give that of an adapter")
    keys = members()
    adapters.load(keys, name, folder)
    out.print(f"{name} is served by {len(keys)}: enqueue with --model {name}", markup=False)


@pool.command()
def unload(name: Annotated[str, typer.Argument(help="What it was loaded as.")]) -> None:
    """Have all servers of the pool forget an adapter. Jobs that ask for it fail from then on.

    Example: weavegen pool unload round-1
    """
    from weavegen.pool import adapters

    if not adapters.unload(members(), name):
        raise UsageError(f"no server of the pool has an adapter {name!r}: see `weavegen pool`")
    out.print(f"{name} is served no more", markup=False)


@pool.command("list")
def list_servers(
    gone: Annotated[bool, typer.Option("--all", help="Also those that have left.")] = False, json: Json = False
) -> None:
    """List the servers of the pool and who lends them, without asking them anything.

    Example: weavegen pool list --all
    """
    from weavegen.store import servers

    with reading() as conn:
        members = servers.members(conn, configuration.load())
        lent = servers.servers(conn, gone=gone)
    rows: list[dict[str, Any]] = [
        {"url": url, "owner": None, "model": None, "added_at": None, "removed_at": None}
        for url in members.keys
        if url not in members.owners
    ]
    rows += [dataclasses.asdict(one) for one in lent]
    if json:
        print_json(rows)
    else:
        out.print(table(rows))


@pool.command()
def usage(by: Annotated[By, typer.Option(help="What to sum up by.")] = By.SERVER, json: Json = False) -> None:
    """Show the ledger: what servers answered, and for whom. The view pool_usage has it by day and sort of step.

    Example: weavegen pool usage --by user
    """
    from weavegen.store import servers

    with reading() as conn:
        rows = servers.usage(conn, by)
    if json:
        print_json(rows)
    else:
        out.print(table(rows))


def members() -> Mapping[str, str]:
    """API keys by base URL of the pool's servers. Raises UsageError where there is none."""
    from weavegen.store import servers

    with reading() as conn:
        found = servers.members(conn, configuration.load())
    found.require()
    return found.keys


def table(rows: list[dict[str, Any]]) -> Table:
    """Rows with equal keys; numbers to the right, what is not known left out."""
    found = Table(box=None, header_style="bold", pad_edge=False)
    for name in rows[0] if rows else ():
        number = any(isinstance(row[name], int) for row in rows)
        found.add_column(NAMES.get(name, name.replace("_", " ")), justify="right" if number else "left")
    for row in rows:
        found.add_row(*(shown(name, value) for name, value in row.items()))
    return found


def shown(name: str, value: Any) -> Any:
    """A value as a table has it."""
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value) if name == "job_id" else f"{value:,}"
    text = value if isinstance(value, str) else value.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    return display.cell(text)


@contextlib.contextmanager
def changing() -> Iterator[sa.Connection]:
    """A connection whose changes are committed in the end."""
    with reading() as conn:
        yield conn
        conn.commit()
