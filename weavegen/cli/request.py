"""Commands about requests to the toolsmith: create, list, show, update, answer, cancel; and its tools."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import RenderableType

import weavegen
from weavegen import config as configuration
from weavegen.cli import display
from weavegen.cli.app import Result, Seed, User, app, command, reading
from weavegen.cli.jobs import McpFile, Set, by_type, pairs
from weavegen.errors import UsageError
from weavegen.store import tools as store

request = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Give the toolsmith a task. It uses tools of its library, and makes tools that are missing.",
)
app.add_typer(request, name="request")

Number = Annotated[int, typer.Argument(min=1, max=2**63 - 1, help="The request's number.")]
Texts = list[str] | None
Requirement = Annotated[Texts, typer.Option("--requirement", "-r", help="What the result must be or have; repeatable.")]
Constraint = Annotated[Texts, typer.Option("--constraint", "-c", help="What must not be done; repeatable.")]


@command(group=request)
def create(
    objective: Annotated[str, typer.Option("--objective", "-o", help="What is to be achieved.")],
    requirement: Requirement = None,
    constraint: Constraint = None,
    user: User = None,
    model: Annotated[str | None, typer.Option(help="The model's name, as for enqueue.")] = None,
    seed: Seed = None,
    set_: Set = None,
    mcp: McpFile = None,
) -> Result:
    """Create a request. The workers start on it at once.

    Example: weavegen request create -o 'How many words has "one two three"?' -r "a number" -c "no network"
    """
    from weavegen.engine import enqueueing

    settings = by_type(pairs(set_))
    lists = {"requirements": requirement or [], "constraints": constraint or []}
    enqueueing.check_services(configuration.load(), model)
    with reading():
        number = weavegen.requests.create(
            objective, **lists, user=user, model=model, seed=seed, settings=settings, mcp=mcp
        )
        created = weavegen.requests.show(number).request
    return Result(created, f"request {number} made: see it with  weavegen request show {number}")


@command("list", group=request)
def list_(
    status: Annotated[Texts, typer.Option(help="Only requests with this status; repeatable.")] = None,
    user: Annotated[str | None, typer.Option(help="Only requests of this user.")] = None,
) -> Result:
    """List requests, each with its result, or with the question whose answer it waits for.

    Example: weavegen request list --status WAITING_FEEDBACK
    """
    with reading():
        rows = weavegen.requests.listed(statuses=status, user=user)
    columns: display.Fields = {
        "request": "id",
        "status": "status",
        "user": "asked_by",
        "trace": "trace_id",
        "objective": lambda row: row.objective[:200],
        "question or result": lambda row: (row.question or row.result or "")[:200],
    }
    return Result(rows, display.table(rows, columns))


@command(group=request)
def show(number: Number) -> Result:
    """Show a request: its objective, its state, and every change with its reason.

    Example: weavegen request show 3
    """
    with reading():
        request = weavegen.requests.show(number)
    return Result(request, parts(request))


def parts(request: Any) -> Iterator[RenderableType]:
    """A request in lines, and a table of its changes."""
    row = request.request
    yield f"request {row.id}: {row.status}, by {row.asked_by}"
    yield row.objective
    yield from (f"requirement: {text}" for text in row.requirements)
    yield from (f"constraint: {text}" for text in row.constraints)
    if row.trace_id is not None:
        yield f"trace {row.trace_id}: read it with  weavegen show {row.trace_id}"
    if row.question is not None:
        yield f"it asks: {row.question}"
        yield f"answer with  weavegen request answer {row.id} 'TEXT'"
    if row.result is not None:
        yield f"result: {row.result}"
    yield display.table(request.changes, {"when": "at", "what": "what", "status": "status", "why": "reason"})


@command(group=request)
def update(
    number: Number,
    objective: Annotated[str | None, typer.Option("--objective", "-o", help="Replaces the objective.")] = None,
    requirement: Annotated[Texts, typer.Option("--requirement", "-r", help="Replaces all; repeatable.")] = None,
    constraint: Annotated[Texts, typer.Option("--constraint", "-c", help="Replaces all; repeatable.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why; the reason is recorded.")] = None,
) -> Result:
    """Change a request that is not over. The agent reads the change at its next stage or turn.

    Example: weavegen request update 3 -r "a number" -r "in one line" --reason "I need it for a table"
    """
    with reading():
        row = weavegen.requests.update(
            number, objective=objective, requirements=requirement, constraints=constraint, reason=reason
        )
    return Result(row, f"request {number} changed, revision {row.revision}: the agent reads it at its next stage")


@command(group=request)
def answer(number: Number, text: Annotated[str, typer.Argument(help="Your answer to its question.")]) -> Result:
    """Answer the question that a request waits for. It continues from there.

    Example: weavegen request answer 3 "the text on page 3"
    """
    with reading():
        row = weavegen.requests.answer(number, text)
    return Result(row, f"request {number} goes on")


@command(group=request)
def cancel(number: Number, reason: Annotated[str, typer.Option(help="Why; the reason is recorded.")]) -> Result:
    """Cancel a request. The blocks of its trace stay.

    Example: weavegen request cancel 3 --reason "no longer needed"
    """
    with reading():
        row = weavegen.requests.cancel(number, reason)
    return Result(row, f"request {number} canceled")


LIBRARY: display.Fields = {
    "tool": "name",
    "version": "version",
    "score": "score",
    "uses": "uses",
    "worked": "successes",
    "in traces": "users",
    "what it does": lambda row: row.description[:200],
}
VERSIONS: display.Fields = {
    "version": "version",
    "score": "score",
    "generality": "generality",
    "uses": "uses",
    "worked": "successes",
    "made by trace": lambda row: None if row.made_by is None else str(row.made_by),
    "program": lambda row: None if row.program is None else f"{row.searched_by}:{row.program}",
}


@command()
def tools(name: Annotated[str | None, typer.Argument(help="A tool's name. Default: list all tools.")] = None) -> Result:
    """List the toolsmith's library; or show one tool: its versions, and the source of the newest.

    Example: weavegen tools count_words
    """
    with reading() as conn:
        rows = store.rows(conn, None if name is None else [name])
        versions = [] if name is None else store.versions(conn, name)
    if name is None:
        return Result(rows, display.table(rows, LIBRARY))
    if not rows:
        raise UsageError(f"the library has no tool {name!r:.80}: `weavegen tools` lists them")
    source = versions[-1].source.rstrip()
    return Result(versions, [rows[0].description, display.table(versions, VERSIONS), f"\n{source}"])
