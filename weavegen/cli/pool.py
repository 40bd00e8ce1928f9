"""Commands about model servers: which are in the pool, who lends and who used them; and nano, a small one."""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from weavegen import config as configuration
from weavegen import sql
from weavegen.cli import display
from weavegen.cli.app import Result, app, command, prints, reading, writing
from weavegen.config import person
from weavegen.errors import UsageError
from weavegen.pool import adapters, capabilities
from weavegen.pool.routing import moves
from weavegen.pool.served import address, check_newcomer, serving
from weavegen.pool.survey import ServerRow, survey
from weavegen.services import model_server, pool_members
from weavegen.services.pool_members import Members
from weavegen.store import reports, servers
from weavegen.store.servers import ServerHealth

pool = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")
app.add_typer(pool, name="pool")

Url = Annotated[str, typer.Argument(metavar="URL", help="Base URL, such as http://gpu7:8000/v1.")]
GROUPS = {"server": "server, owner", "owner": "owner", "job": "job_id, job, enqueued_by", "user": "enqueued_by"}
"""Groups of `weavegen pool usage`, with their columns of the view pool_usage."""
HEADINGS = {"job_id": "job", "job": "name", "enqueued_by": "user"}
"""Headings of pool_usage that are not the column's name."""


@pool.callback()
@prints
def show(
    context: typer.Context,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to measure the rates.")] = 1.0,
) -> Result | None:
    """Show the model servers: running and waiting requests, cache use, prefix cache hits, tokens a second.

    The subcommands lend servers to the pool, remove them, and show who lends and who used them.

    Example: weavegen pool --seconds 5
    """
    if context.invoked_subcommand is not None:
        return None
    with reading() as conn:
        members = pool_members.members(conn, configuration.load())
        traces = reports.traces_by_server(conn)
    members.require()
    rows = survey(members.keys, seconds)
    with reading() as conn:
        health = servers.health(conn, members.keys)
    values = server_values(rows, members, traces, health)
    code = int(all(row["state"] in ("away", "failing") for row in values))
    return Result(values, [display.pool_table(values), *display.health_lines(health)], code)


def server_values(
    rows: Iterable[ServerRow], members: Members, traces: Mapping[str, int], health: Iterable[ServerHealth]
) -> list[dict[str, Any]]:
    """Model servers with their owners, the running traces whose home they are, and the workers' errors there.

    A server that answers, but at which all requests of workers fail, is `failing`. `traces`: by URL.
    """
    none = {"errors": 0, "errors_since_ok": 0, "last_error": None, "last_error_at": None}
    failed = {server.url: server for server in health}
    values = []
    for row in rows:
        value = asdict(row) | {"owner": members.owners.get(row.url), "traces": traces.get(row.url, 0)} | none
        if (server := failed.get(row.url)) is not None:
            value |= {name: getattr(server, name) for name in none}
            if server.failing and row.state != "away":
                value |= {"state": "failing", "why": server.line}
        values.append(value)
    return values


@command(group=pool)
def add(
    url: Url,
    owner: Annotated[str | None, typer.Option(help="Who lends it. Default: WEAVEGEN_USER or the login name.")] = None,
) -> Result:
    """Lend a model server to the pool. Workers use it within seconds, and some running traces move to it.

    All workers must reach its address. If it serves another model than the others, jobs name theirs with --model. If
    it needs a key, set WEAVEGEN_POOL_KEY for the workers and for this command: OPENAI_API_KEY is not sent to it.

    Example: weavegen pool add http://gpu7:8000/v1 --owner ada
    """
    config = configuration.load()
    base, lender = address(url), config.user if owner is None else person(owner, "--owner")
    with writing() as conn:
        members = pool_members.members(conn, config)
        conn.rollback()
        model = check_newcomer(base, config.pool_key)
        same = list(serving({base: config.pool_key, **members.keys}, model))
        moved = servers.add(conn, base, lender, model, list(members.keys), same, moves)
    has = capabilities.probe_all({base: config.pool_key})[base]
    lacks = None if isinstance(has, str) else capabilities.lacks(has)
    told = [f"it could not be probed: {has}"] if lacks is None else [f"it lacks {text}" for text in lacks]
    value = {"url": base, "owner": lender, "model": model, "traces": moved, "lacks": lacks}
    line = f"{base} is in the pool, lent by {lender}: {moved} running traces move to it"
    return Result(value, [line, *told])


@command(group=pool)
def probe(
    urls: Annotated[list[str] | None, typer.Argument(metavar="[URL]...", help="Default: the pool's servers.")] = None,
) -> Result:
    """Probe what model servers can do, and show which agents and features that allows. Sends each about 15 requests.

    Example: weavegen pool probe
    """
    config = configuration.load()
    keys = {address(url): config.pool_key for url in urls} if urls else members()
    found = capabilities.probe_all(keys)
    values = [
        {"url": url, "error": has} if isinstance(has, str) else {"url": url, **msgspec.structs.asdict(has)}
        for url, has in found.items()
    ]
    tables = [part for url, has in found.items() for part in display.capabilities(url, has)]
    return Result(values, tables, code=int(any(isinstance(has, str) for has in found.values())))


@command(group=pool)
def remove(url: Url) -> Result:
    """Remove an added server from the pool. Within seconds no more requests are sent to it.

    In-flight requests finish, and its traces continue on other servers. To remove a server of OPENAI_BASE_URL,
    change that variable.

    Example: weavegen pool remove http://gpu7:8000/v1
    """
    base = address(url)
    with writing() as conn:
        before = pool_members.members(conn, config := configuration.load())
        if base in before.keys.keys() - before.owners.keys():
            raise UsageError(f"{base} is one of OPENAI_BASE_URL: remove it there, and restart the workers")
        traces = servers.remove(conn, base)
        left = pool_members.members(conn, config).keys
    traces_text = f"{traces} running traces " + ("continue on other servers" if left else "wait for another server")
    line = f"{base} has left the pool: {traces_text}; in-flight requests finish"
    return Result({"url": base, "traces": traces, "servers": len(left)}, line)


@command(group=pool)
def load(
    name: Annotated[str, typer.Argument(help="The name that jobs ask for: --model NAME.")],
    folder: Annotated[Path, typer.Argument(help="A LoRA adapter in PEFT's format, where all servers can read it.")],
) -> Result:
    """Load an adapter into all servers of the pool, which serve it beside their model without interruption.

    The workers load it again into servers that are restarted, and into those that join the pool later.
    vLLM needs --enable-lora, and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment. nano also loads a
    folder with full weights.

    Example: weavegen pool load round-1 models/round-1
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder: give an adapter's folder")
    if not (count := load_adapter(name, folder)):
        raise UsageError(f"{name} is served already: unload it first, or give another name")
    return Result({"name": name, "servers": count}, f"{count} servers have loaded it: enqueue with --model {name}")


@command(group=pool)
def unload(name: Annotated[str, typer.Argument(help="The name under which it was loaded.")]) -> Result:
    """Unload an adapter from all servers of the pool. Jobs that ask for it can't go on then.

    Example: weavegen pool unload round-1
    """
    if not unload_adapter(name):
        raise UsageError(f"no server of the pool has an adapter {name!r}: see `weavegen pool`")
    return Result({"name": name}, f"{name} is no longer served")


@command("list", group=pool)
def list_servers(
    gone: Annotated[bool, typer.Option("--all", help="Also list servers that have left.")] = False,
) -> list[dict[str, Any]]:
    """List the servers of the pool and their lenders from the database, without a request to any server.

    Example: weavegen pool list --all
    """
    with reading() as conn:
        members = pool_members.members(conn, configuration.load())
        lent = servers.servers(conn, gone=gone)
        health = {server.url: server.line for server in servers.health(conn, members.keys)}
    none: dict[str, Any] = dict.fromkeys(("owner", "model", "added_at", "removed_at"))
    rows = [{"url": url} | none for url in members.keys if url not in members.owners]
    rows += [server._asdict() for server in lent]
    return [row | {"last_error": None if row["removed_at"] else health.get(row["url"])} for row in rows]


@command(group=pool)
def usage(
    by: Annotated[Literal["server", "owner", "job", "user"], typer.Option(help="What to group by.")] = "server",
) -> Result:
    """Show the ledger: how much servers answered, and for whom. The view pool_usage has it by day and step kind.

    Example: weavegen pool usage --by user
    """
    with reading() as conn:
        rows = conn.execute(sql.load("store/pool_usage", columns=GROUPS[by])).mappings()
    columns = {HEADINGS.get(name, name.replace("_", " ")): name for name in (rows[0] if rows else ())}
    return Result(rows, display.table(rows, columns))


def members() -> Mapping[str, str]:
    """API keys of the pool's servers by base URL. Raises UsageError where there is no server."""
    with reading() as conn:
        pool = pool_members.members(conn, configuration.load())
    pool.require()
    return pool.keys


def load_adapter(name: str, folder: Path) -> int:
    """Let the pool's servers serve an adapter, also after a restart. Returns how many did not. Raises UsageError."""
    if count := adapters.load(members(), name, folder):
        with writing() as conn:
            sql.run(conn, "store/record_adapter", name=name, folder=str(folder.absolute()))
    return count


def unload_adapter(name: str) -> int:
    """Unload an adapter from the pool's servers, for good. Returns 0 if nothing knew it. Raises UsageError."""
    with writing() as conn:
        recorded = int(sql.run(conn, "store/forget_adapter", name=name).rowcount)
    return adapters.unload(members(), name) or recorded


nano = typer.Typer(no_args_is_help=True, help="Serve a small model on the CPU through vLLM's API (docs/nano.md).")
app.add_typer(nano, name="nano")


@nano.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
def serve(context: typer.Context) -> None:
    """Serve a model in the foreground: weavegen's own, or another one of up to about ten million parameters.

    The server program replaces this process. `weavegen nano serve --help` lists its options.

    Example: weavegen nano serve --port 8018
    """
    os.execv(sys.executable, [*model_server.NANO_COMMAND, *context.args])
