"""The command rescore: asks the model further questions about recorded texts."""

import enum
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import sqlalchemy as sa
import typer
from rich.console import RenderableType

from weavegen import __version__
from weavegen import config as configuration
from weavegen.cli import display
from weavegen.cli.app import (
    QUERY_SECONDS,
    Result,
    command,
    is_simulated,
    print_part,
    progress_bar,
    reading,
    writing,
)
from weavegen.errors import UsageError
from weavegen.evaluator.rubrics import parse
from weavegen.store.campaigns import CampaignRow
from weavegen.store.models import CampaignState
from weavegen.trace.render import one_line

MAX_NAME_CHARS = 100
SIMULATED_ANSWERS = "SIMULATED answers: the simulation is no model, and its answers mean nothing"
POLL_SECONDS = 0.5
"""Between two reads of a campaign's state."""
LINE_SECONDS = 10.0
"""Between two lines about a campaign, where there is no terminal."""


class Over(enum.StrEnum):
    """What a campaign asks about."""

    BLOCKS = "blocks"
    CANDIDATES = "candidates"


VIEWS = {Over.BLOCKS: ("corpus", "block_id"), Over.CANDIDATES: ("corpus_candidates", "candidate_id")}
"""The view that --where applies to, and its column of ids."""


@command()
def rescore(
    rubric: Annotated[
        Path | None, typer.Option(help="A TOML file with the questions; docs/rubric.toml is an example.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(help="An SQL condition over the view corpus, or corpus_candidates with --over candidates."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The campaign's name. Default: the rubric's file name.")] = None,
    over: Annotated[
        Over, typer.Option(help="Ask about recorded blocks, or about all sampled candidates.")
    ] = Over.BLOCKS,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask about only the first so many, by id.")] = None,
    model: Annotated[
        str | None, typer.Option(help="The model to ask. Default: the model of each trace's job.")
    ] = None,
    wait: Annotated[bool, typer.Option(help="Show the campaign's progress until it is done.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Only print how many questions would be asked.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the campaigns.")] = False,
    stop: Annotated[str | None, typer.Option(metavar="NAME", help="Stop a campaign. Its answers stay.")] = None,
    resume: Annotated[str | None, typer.Option(metavar="NAME", help="Continue a stopped campaign.")] = None,
    retry: Annotated[
        str | None, typer.Option(metavar="NAME", help="Ask the questions that failed once more.")
    ] = None,
    json: bool = False,
) -> Result:
    """Ask the model yes/no questions about recorded blocks or candidates. Running traces have priority.

    About each text the model reads exactly the prompt that it read before it wrote the text. The answers are added
    to the corpus (view campaign_answers); none is overwritten. The workers ask the questions, and the command
    returns at once, unless --wait is given.

    Example: weavegen rescore --rubric docs/rubric.toml --where "type = 'action' and ran is not null" --wait
    """
    from weavegen.store import campaigns

    changes = (stop, resume, retry)
    if (rubric is not None or where is not None) + list_ + sum(change is not None for change in changes) != 1:
        raise UsageError("give --rubric with --where, or one of --list, --stop, --resume, --retry")
    if list_:
        with reading() as conn:
            rows = campaigns.rows(conn)
        return Result(rows, parts(rows))
    campaign = stop or resume or retry
    if campaign is None:
        if rubric is None:
            raise UsageError("give --rubric: the file with the questions")
        if where is None:
            raise UsageError(
                "give --where: which blocks to ask about, such as \"type = 'action'\"; 'true' for all"
            )
        campaign, preview = create(rubric, where, name, over, limit, model, workers=wait, dry_run=dry_run)
        if dry_run:
            return preview
        if not json:
            print_part(str(preview.shown))
    else:
        with writing() as conn:
            if retry is not None:
                campaigns.retry(conn, campaign)
            else:
                campaigns.set_state(conn, campaign, CampaignState.STOPPED if stop else CampaignState.ACTIVE)
    with reading() as conn:
        row = watch(conn, campaign, stderr=json) if wait and stop is None else campaigns.rows(conn, campaign)[0]
    return Result(row, parts([row]), code=1 if wait and row.failed else 0)


def create(
    rubric: Path,
    where: str,
    name: str | None,
    over: Over,
    limit: int | None,
    model: str | None,
    *,
    workers: bool,
    dry_run: bool,
) -> tuple[str, Result]:
    """Write a campaign, unless it is a dry run. Returns its name, and what it asks about. Raises UsageError."""
    from weavegen.engine import enqueueing
    from weavegen.store import campaigns, reports

    questions = parse(enqueueing.read(rubric), str(rubric))
    campaign = one_line(name if name is not None else rubric.stem)
    if not 0 < len(campaign) <= MAX_NAME_CHARS or campaign.startswith("-"):
        raise UsageError(f"--name {campaign!r:.50}: give a name of up to {MAX_NAME_CHARS} characters")
    if not dry_run:
        enqueueing.check_services(configuration.load(), model, workers=workers)
    view, id = VIEWS[over]
    with writing() as conn:
        rest = "order by 1" + (f" limit {limit}" if limit is not None else "")
        rows = reports.matching(conn, f"select {id} from {view} where true", where, QUERY_SECONDS, rest)
        conn.rollback()
        ids = [int(row[0]) for row in rows]
        counts = campaigns.chosen(conn, questions, over, ids)
        if not dry_run and not counts.asked:
            raise UsageError(
                f"--where finds {counts.found} {over}, and none that the model wrote and the rubric asks about: "
                "try it with --dry-run"
            )
        if not dry_run:
            campaigns.create(
                conn, campaign, questions, over, ids, condition=where, model=model, version=__version__
            )
    left_out = counts.found - counts.asked
    line = (
        f"{counts.found} {over} match, {left_out} of them left out (the model did not write them, or the rubric "
        f"has no question about their type): {counts.asked} in {counts.traces} traces, "
        f"{counts.questions} questions" + (", and those of their assertions" if questions.assertions else "")
    )
    return campaign, Result(asdict(counts) | {"left_out": left_out, "dry_run": dry_run}, line)


def parts(rows: list[CampaignRow]) -> Iterator[RenderableType]:
    """Campaigns as a table, with remarks."""
    names = ("state", "over", "rubric_version", "model", "items", "done", "failed", "answers")
    yield display.table(rows, {"campaign": "name"} | {name.removesuffix("_version"): name for name in names})
    if is_simulated():
        yield SIMULATED_ANSWERS
    if any(row.failed for row in rows):
        yield (
            'why some failed:  weavegen sql "select failure, count(*) from campaign_items where failure is not '
            'null group by 1"; once more:  weavegen rescore --retry NAME'
        )


def watch(conn: sa.Connection, name: str, *, stderr: bool) -> CampaignRow:
    """Show a campaign's progress until it is done or stopped: a bar, or lines where there is no terminal."""
    from weavegen.store import campaigns

    console = display.console(stderr=stderr)
    next_line = time.monotonic() + LINE_SECONDS
    with progress_bar(name) as progress:
        while True:
            row = campaigns.rows(conn, name)[0]
            conn.rollback()
            progress(row.done, row.items)
            if row.state != CampaignState.ACTIVE:
                return row
            if not console.is_terminal and time.monotonic() > next_line:
                next_line = time.monotonic() + LINE_SECONDS
                console.print(f"{name}: {row.done} of {row.items}", markup=False)
            time.sleep(POLL_SECONDS)
