"""The command that asks the model further questions about what is recorded."""

import dataclasses
import enum
import time
from pathlib import Path
from typing import Annotated

import sqlalchemy as sa
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from weavegen import __version__
from weavegen import config as configuration
from weavegen.cli.app import Json, app, out, print_json, reading
from weavegen.errors import UsageError
from weavegen.evaluator.rubrics import parse
from weavegen.monitoring import display
from weavegen.store.campaigns import CampaignRow
from weavegen.store.models import CampaignState
from weavegen.trace.render import one_line

SECONDS = 600.0
"""That a condition may take to be looked up."""
LONGEST_NAME = 100
SIMULATED = "SIMULATED answers: the simulation answers, which is no model; they mean nothing"
LOOK = 0.5
"""Seconds between two looks at a campaign."""


class Over(enum.StrEnum):
    """What a campaign asks about."""

    BLOCKS = "blocks"
    CANDIDATES = "candidates"


VIEWS = {Over.BLOCKS: ("corpus", "block_id"), Over.CANDIDATES: ("corpus_candidates", "candidate_id")}
"""The view whose columns a condition is over, and what it chooses."""


@app.command()
def rescore(
    rubric: Annotated[
        Path | None, typer.Option(help="A TOML file with the questions; docs/rubric.toml is an example.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(help="An SQL condition over the view corpus; with --over candidates corpus_candidates."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What to call the campaign; the rubric's file name by default.")
    ] = None,
    over: Annotated[
        Over, typer.Option(help="Ask about recorded blocks, or about all that was sampled.")
    ] = Over.BLOCKS,
    limit: Annotated[int | None, typer.Option(min=1, help="The first so many, by number.")] = None,
    model: Annotated[
        str | None, typer.Option(help="The model to ask; that of each trace's job by default.")
    ] = None,
    wait: Annotated[bool, typer.Option(help="Show the campaign until it is done.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Only say what would be asked.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the campaigns.")] = False,
    stop: Annotated[str | None, typer.Option(metavar="NAME", help="Stop a campaign; what it has stays.")] = None,
    resume: Annotated[str | None, typer.Option(metavar="NAME", help="Let a stopped campaign go on.")] = None,
    retry: Annotated[
        str | None, typer.Option(metavar="NAME", help="Ask once more about what could not be asked.")
    ] = None,
    json: Json = False,
) -> None:
    """Ask the model yes/no questions about recorded blocks or candidates, behind all running traces.

    Of each one it reads exactly what it had read before it wrote it. The answers are added to the corpus (view
    campaign_answers) and overwrite nothing. Workers do it, so the command returns at once, but with --wait.

    Example: weavegen rescore --rubric docs/rubric.toml --where "type = 'action' and ran is not null" --wait
    """
    from weavegen.store import campaigns

    given = [
        rubric is not None or where is not None,
        list_,
        stop is not None,
        resume is not None,
        retry is not None,
    ]
    if sum(given) != 1:
        raise UsageError("give --rubric with --where, or one of --list, --stop, --resume, --retry")
    if list_:
        with reading() as conn:
            rows = campaigns.rows(conn)
        show(rows, json, many=True)
        return
    if rubric is None and where is not None:
        raise UsageError("give --rubric: the file with the questions")
    chosen = stop or resume or retry
    if chosen is not None:
        with reading() as conn:
            if retry is not None:
                campaigns.retry(conn, chosen)
            else:
                campaigns.set_state(conn, chosen, CampaignState.STOPPED if stop else CampaignState.ACTIVE)
            conn.commit()
    else:
        assert rubric is not None
        chosen = begin(rubric, where, name, over, limit, model, workers=wait, dry_run=dry_run, json=json)
        if chosen is None:
            return
    with reading() as conn:
        row = watch(conn, chosen, quiet=json) if wait and stop is None else campaigns.rows(conn, chosen)[0]
    show([row], json, many=False)
    raise typer.Exit(1 if wait and row.failed else 0)


def begin(
    rubric: Path,
    where: str | None,
    name: str | None,
    over: Over,
    limit: int | None,
    model: str | None,
    *,
    workers: bool,
    dry_run: bool,
    json: bool,
) -> str | None:
    """Write a campaign. Returns its name; None where nothing was to be written."""
    from weavegen.engine import enqueueing
    from weavegen.store import campaigns, reports

    found = parse(enqueueing.read(rubric), str(rubric))
    if where is None:
        raise UsageError("give --where: which blocks to ask about, such as \"type = 'action'\"; 'true' for all")
    called = one_line(name if name is not None else rubric.stem)
    if not 0 < len(called) <= LONGEST_NAME or called.startswith("-"):
        raise UsageError(f"--name {called!r:.50}: give a name of up to {LONGEST_NAME} characters")
    if not dry_run:
        enqueueing.check_services(configuration.load(), model, workers=workers)
    view, id = VIEWS[over]
    with reading() as conn:
        rest = "order by 1" + (f" limit {limit}" if limit is not None else "")
        rows = reports.matching(conn, f"select {id} from {view} where true", where, SECONDS, rest)
        conn.rollback()
        ids = [int(row[0]) for row in rows]
        counts = campaigns.chosen(conn, found, over, ids)
        left_out = counts.found - counts.asked
        if not dry_run and not counts.asked:
            raise UsageError(
                f"--where finds {counts.found} {over}, and none that the model wrote and the rubric asks about: "
                "try it with --dry-run"
            )
        if not dry_run:
            campaigns.create(conn, called, found, over, ids, condition=where, model=model, version=__version__)
            conn.commit()
    if dry_run and json:
        print_json(dataclasses.asdict(counts) | {"left_out": left_out, "dry_run": True})
    elif not json:
        out.print(
            f"{counts.found} {over} match, {left_out} of them left out (the model did not write them, or the "
            f"rubric asks nothing about their type): {counts.asked} in {counts.traces} traces, "
            f"{counts.questions} questions" + (", and those of their assertions" if found.assertions else ""),
            markup=False,
        )
    return None if dry_run else called


def show(rows: list[CampaignRow], json: bool, *, many: bool) -> None:
    """Print campaigns."""
    from weavegen.services import model_server

    if json:
        found = [dataclasses.asdict(row) for row in rows]
        print_json(found if many else found[0])
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("campaign", "state", "over", "rubric", "model"):
        table.add_column(title, no_wrap=True)
    for title in ("items", "done", "failed", "answers"):
        table.add_column(title, justify="right")
    for row in rows:
        texts = (row.name, row.state, row.over, row.rubric_version, row.model)
        numbers = (row.items, row.done, row.failed, row.answers)
        table.add_row(*map(display.cell, texts), *map(str, numbers))
    out.print(table)
    if model_server.simulated(configuration.load()):
        out.print(SIMULATED)
    if any(row.failed for row in rows):
        out.print(
            'why some failed:  weavegen sql "select failure, count(*) from campaign_items where failure is not '
            'null group by 1"; once more:  weavegen rescore --retry NAME',
            markup=False,
        )


def watch(conn: sa.Connection, name: str, *, quiet: bool) -> CampaignRow:
    """Show a campaign until it is done or stopped; without a terminal, a line every ten seconds."""
    from weavegen.store import campaigns

    def look() -> CampaignRow:
        try:
            return campaigns.rows(conn, name)[0]
        finally:
            conn.rollback()

    console = display.console(stderr=quiet)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    row, said = look(), time.monotonic()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(display.harmless(name), total=row.items)
        while row.state == CampaignState.ACTIVE:
            progress.update(bar, completed=row.done)
            if not console.is_terminal and time.monotonic() - said > 10:
                said = time.monotonic()
                console.print(f"{display.harmless(name)}: {row.done} of {row.items}", markup=False)
            time.sleep(LOOK)
            row = look()
        progress.update(bar, completed=row.done)
    return row
