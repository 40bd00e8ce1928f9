"""Commands about requests to the toolsmith: create, list, show, update, answer, cancel."""

import dataclasses
from typing import Annotated, Any

import typer
from rich.table import Table

from weavegen import config as configuration
from weavegen.cli.app import Json, Seed, app, out, print_json, reading
from weavegen.cli.jobs import by_type, pairs
from weavegen.errors import UsageError
from weavegen.monitoring import display

request = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Ask the toolsmith for something: it works with tools that it finds in a library, or has made.",
)
app.add_typer(request, name="request")

Number = Annotated[int, typer.Argument(min=1, max=2**63 - 1, help="A request's number.")]
Texts = list[str] | None
Requirement = Annotated[
    Texts, typer.Option("--requirement", "-r", help="What the result must be or have; repeatable.")
]
Constraint = Annotated[Texts, typer.Option("--constraint", "-c", help="What must not be done; repeatable.")]


@request.command()
def create(
    objective: Annotated[str, typer.Option("--objective", "-o", help="What is to be achieved.")],
    requirement: Requirement = None,
    constraint: Constraint = None,
    user: Annotated[str | None, typer.Option(help="Who asks; WEAVEGEN_USER or the login name by default.")] = None,
    model: Annotated[str | None, typer.Option(help="As for enqueue.")] = None,
    seed: Seed = None,
    set_: Annotated[Texts, typer.Option("--set", help="KEY=VALUE, as for enqueue.")] = None,
    json: Json = False,
) -> None:
    """Make a request. The workers take it from there.

    Example: weavegen request create -o 'How many words has "one two three"?' -r "a number" -c "no network"
    """
    from weavegen.engine import enqueueing, tool_requests

    settings = by_type(pairs(set_))
    enqueueing.check_services(configuration.load(), model)
    with reading():
        number = tool_requests.create(
            objective,
            requirements=requirement or [],
            constraints=constraint or [],
            user=user,
            model=model,
            seed=seed,
            settings=settings,
        )
        shown = tool_requests.show(number)
    if json:
        print_json(dataclasses.asdict(shown.request))
    else:
        out.print(f"request {number} made: see it with  weavegen request show {number}")


@request.command("list")
def list_(
    status: Annotated[Texts, typer.Option(help="Only those with this status; repeatable.")] = None,
    user: Annotated[str | None, typer.Option(help="Only this user's.")] = None,
    json: Json = False,
) -> None:
    """List requests, and what those wait for that wait for an answer.

    Example: weavegen request list --status WAITING_FEEDBACK
    """
    from weavegen.engine import tool_requests

    with reading():
        rows = tool_requests.listed(statuses=status, user=user)
    if json:
        print_json([dataclasses.asdict(row) for row in rows])
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("request", "status", "user", "trace", "objective", "question or result"):
        table.add_column(title, justify="right" if title in ("request", "trace") else "left")
    for row in rows:
        trace = "" if row.trace_id is None else str(row.trace_id)
        said = display.cell((row.question or row.result or "")[:200])
        table.add_row(
            str(row.id), row.status, display.cell(row.asked_by), trace, display.cell(row.objective[:200]), said
        )
    out.print(table)


@request.command()
def show(number: Number, json: Json = False) -> None:
    """Show a request: what is asked for, where it stands, and every change with its reason.

    Example: weavegen request show 3
    """
    from weavegen.engine import tool_requests

    with reading():
        shown = tool_requests.show(number)
    if json:
        print_json(dataclasses.asdict(shown))
        return
    row = shown.request
    out.print(f"request {row.id}: {row.status}, by {display.harmless(row.asked_by)}", markup=False)
    said(row.objective)
    for title, texts in (("requirement", row.requirements), ("constraint", row.constraints)):
        for text in texts:
            said(f"{title}: {text}")
    if row.trace_id is not None:
        out.print(f"trace {row.trace_id}: read it with  weavegen show {row.trace_id}", markup=False)
    if row.question is not None:
        said(f"it asks: {row.question}")
        out.print(f"answer with  weavegen request answer {row.id} 'TEXT'", markup=False)
    if row.result is not None:
        said(f"result: {row.result}")
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("when", "what", "status", "why"):
        table.add_column(title)
    for change in shown.changes:
        when = change.at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        table.add_row(when, change.what, change.status, display.cell(change.reason))
    out.print(table)


@request.command()
def update(
    number: Number,
    objective: Annotated[str | None, typer.Option("--objective", "-o", help="In place of the old one.")] = None,
    requirement: Annotated[
        Texts, typer.Option("--requirement", "-r", help="In place of all the old ones; repeatable.")
    ] = None,
    constraint: Annotated[
        Texts, typer.Option("--constraint", "-c", help="In place of all the old ones; repeatable.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why; it is kept.")] = None,
    json: Json = False,
) -> None:
    """Change what a request asks for, while it is not over. The agent reads it at its next stage or turn.

    Example: weavegen request update 3 -r "a number" -r "in one line" --reason "I need it for a table"
    """
    from weavegen.engine import tool_requests

    with reading():
        row = tool_requests.update(
            number, objective=objective, requirements=requirement, constraints=constraint, reason=reason
        )
    told(row, json, f"request {number} changed, revision {row.revision}: the agent reads it at its next stage")


@request.command()
def answer(
    number: Number,
    text: Annotated[str, typer.Argument(help="What you say to its question.")],
    json: Json = False,
) -> None:
    """Answer what a request waits for. It goes on exactly where it asked.

    Example: weavegen request answer 3 "the text on page 3"
    """
    from weavegen.engine import tool_requests

    with reading():
        row = tool_requests.answer(number, text)
    told(row, json, f"request {number} goes on")


@request.command()
def cancel(
    number: Number,
    reason: Annotated[str, typer.Option(help="Why; it is kept.")],
    json: Json = False,
) -> None:
    """Give a request up. What its trace wrote stays.

    Example: weavegen request cancel 3 --reason "no longer needed"
    """
    from weavegen.engine import tool_requests

    with reading():
        row = tool_requests.cancel(number, reason)
    told(row, json, f"request {number} canceled")


def told(row: Any, json: bool, line: str) -> None:
    """Say what has become of a request."""
    if json:
        print_json(dataclasses.asdict(row))
    else:
        out.print(line)


def said(text: str) -> None:
    """Print somebody else's words."""
    out.print(display.harmless(text), markup=False)


@app.command()
def tools(
    name: Annotated[str | None, typer.Argument(help="A tool's name; all by default.")] = None,
    json: Json = False,
) -> None:
    """List the library of tools, or show one's versions and the source of the newest.

    Example: weavegen tools count_words
    """
    from weavegen.store import tools as store

    with reading() as conn:
        rows = store.rows(conn, None if name is None else [name])
        versions = [] if name is None else store.versions(conn, name)
    if name is not None and not rows:
        raise UsageError(f"the library has no tool {name!r:.80}: `weavegen tools` lists them")
    if json:
        print_json([dataclasses.asdict(one) for one in (rows if name is None else versions)])
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    if name is None:
        for title in ("tool", "version", "score", "uses", "worked", "in traces", "what it does"):
            table.add_column(title, justify="left" if title in ("tool", "what it does") else "right")
        for row in rows:
            table.add_row(
                display.cell(row.name), str(row.version), number_text(row.score), str(row.uses),
                str(row.successes), str(row.users), display.cell(row.description[:200]),
            )  # fmt: skip
        out.print(table)
        return
    for title in ("version", "score", "generality", "uses", "worked", "made by trace", "program"):
        table.add_column(title, justify="right")
    for version in versions:
        program = "" if version.program is None else f"{version.searched_by}:{version.program}"
        table.add_row(
            str(version.version), number_text(version.score), number_text(version.generality), str(version.uses),
            str(version.successes), "" if version.made_by is None else str(version.made_by), program,
        )  # fmt: skip
    said(rows[0].description)
    out.print(table)
    display.write(f"\n{versions[-1].source.rstrip()}\n")


def number_text(value: float | None) -> str:
    """A null is not a zero."""
    return "" if value is None else f"{value:.4g}"
