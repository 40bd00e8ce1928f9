"""Commands about answers of the model: rescore asks further questions, calibrate compares answers with outcomes."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import RenderableType
from rich.text import Text

from weavegen import config as configuration
from weavegen.cli import display
from weavegen.cli.app import QUERY_SECONDS, Result, command, is_simulated, print_part, progress_bar, reading, writing
from weavegen.database import Connection
from weavegen.errors import UsageError, required
from weavegen.evaluator.rubrics import parse
from weavegen.store import campaigns, reports
from weavegen.store.states import CampaignState
from weavegen.trace.render import one_line
from weavegen.version import __version__

if TYPE_CHECKING:
    from weavegen.evaluator.calibration import Figures, Fit, Pair

MAX_NAME_CHARS = 100
SIMULATED_ANSWERS = "SIMULATED answers: the simulation is not a model, and its answers mean nothing"
POLL_SECONDS = 0.5
"""Time between reads of a campaign's state."""
LINE_SECONDS = 10.0
"""Time between lines about a campaign, if there is no terminal."""

Over = Literal["blocks", "candidates"]
VIEWS: dict[Over, tuple[str, str]] = {
    "blocks": ("corpus", "block_id"),
    "candidates": ("corpus_candidates", "candidate_id"),
}
"""The view that --where applies to, and its column of ids."""


@dataclass(frozen=True)
class CampaignOptions:
    """What a new campaign asks. Each field is an option of the command line."""

    rubric: Annotated[Path | None, typer.Option(help="A TOML file of questions, such as docs/rubric.toml.")] = None
    where: Annotated[
        str | None,
        typer.Option(help="An SQL condition over the view corpus, or corpus_candidates with --over candidates."),
    ] = None
    name: Annotated[str | None, typer.Option(help="The campaign's name. Default: the rubric's file name.")] = None
    over: Annotated[Over, typer.Option(help="Ask about recorded blocks, or about all sampled candidates.")] = "blocks"
    limit: Annotated[int | None, typer.Option(min=1, help="Ask about only the first N, by id.")] = None
    model: Annotated[str | None, typer.Option(help="The model to ask. Default: the model of each trace's job.")] = None


@command()
def rescore(
    *,
    options: CampaignOptions,
    wait: Annotated[bool, typer.Option(help="Show the campaign's progress until it is done.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Only print how many questions would be asked.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the campaigns.")] = False,
    stop: Annotated[str | None, typer.Option(metavar="NAME", help="Stop a campaign. Its answers stay.")] = None,
    resume: Annotated[str | None, typer.Option(metavar="NAME", help="Continue a stopped campaign.")] = None,
    retry: Annotated[str | None, typer.Option(metavar="NAME", help="Ask failed questions again.")] = None,
    json: bool = False,
) -> Result:
    """Ask the model yes/no questions about recorded blocks or candidates. Running traces have priority.

    For each text, the model reads exactly the prompt that it read before it wrote the text. The answers are added
    to the corpus (view campaign_answers); none is overwritten. The workers ask the questions, and the command
    returns at once, unless --wait is given.

    Example: weavegen rescore --rubric docs/rubric.toml --where "type = 'action' and ran is not null" --wait
    """
    new = options.rubric is not None or options.where is not None
    if [new, list_, *(change is not None for change in (stop, resume, retry))].count(True) != 1:
        raise UsageError("give --rubric with --where, or one of --list, --stop, --resume, --retry")
    if not new and (dry_run or options != CampaignOptions()):
        raise UsageError("--dry-run, --name, --over, --limit and --model are for a new campaign: leave them out")
    if list_:
        with reading() as conn:
            rows = campaigns.rows(conn)
        return Result(rows, parts(rows))
    campaign = stop or resume or retry
    if campaign is None:
        campaign, preview = create(options, workers=wait, dry_run=dry_run)
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


def create(options: CampaignOptions, *, workers: bool, dry_run: bool) -> tuple[str, Result]:
    """Write a campaign, unless it is a dry run. Returns its name, and what it asks about. Raises UsageError."""
    from weavegen.engine import enqueueing

    rubric, over = required(options.rubric, "give --rubric: the file with the questions"), options.over
    where = required(options.where, "give --where: the blocks to ask about, such as \"type = 'action'\"; true for all")
    questions = parse(enqueueing.read(rubric), str(rubric))
    campaign = one_line(options.name if options.name is not None else rubric.stem)
    if not 0 < len(campaign) <= MAX_NAME_CHARS or campaign.startswith("-"):
        raise UsageError(f"--name {campaign!r:.50}: give a name of up to {MAX_NAME_CHARS} characters")
    if not dry_run:
        enqueueing.check_services(configuration.load(), options.model, workers=workers)
    view, id = VIEWS[over]
    with writing() as conn:
        rest = "order by 1" + (f" limit {options.limit}" if options.limit is not None else "")
        rows = reports.matching(conn, f"select {id} from {view} where true", where, QUERY_SECONDS, rest)
        conn.rollback()
        ids = [int(row[0]) for row in rows]
        counts = campaigns.preview(conn, questions, over, ids)
        if not dry_run and not counts.asked:
            raise UsageError(
                f"--where finds {counts.found} {over}, and none that the model wrote and the rubric asks about: "
                "try it with --dry-run"
            )
        if not dry_run:
            campaigns.create(
                conn, campaign, questions, over, ids, condition=where, model=options.model, version=__version__
            )
    left_out = counts.found - counts.asked
    line = (
        f"{counts.found} {over} match, {left_out} of them left out (the model did not write them, their "
        f"tick was started over, or the rubric has no question about their type): {counts.asked} in {counts.traces} "
        f"traces, {counts.questions} questions" + (", and those of their assertions" if questions.assertions else "")
    )
    return campaign, Result(counts._asdict() | {"left_out": left_out, "dry_run": dry_run}, line)


def parts(rows: Sequence[Any]) -> Iterator[RenderableType]:
    """Campaigns as a table, with remarks."""
    names = ("state", "over", "rubric_version", "model", "items", "done", "failed", "answers")
    yield display.table(rows, {"campaign": "name"} | {name.removesuffix("_version"): name for name in names})
    if is_simulated():
        yield SIMULATED_ANSWERS
    if any(row.failed for row in rows):
        yield (
            'why some failed:  weavegen sql "select failure, count(*) from campaign_items where failure is not '
            'null group by 1"; ask again:  weavegen rescore --retry NAME'
        )


def watch(conn: Connection, name: str, *, stderr: bool) -> Any:
    """Show a campaign's progress until it is done or stopped: a bar, or lines where there is no terminal."""
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


@command()
def calibrate(
    campaign: Annotated[str | None, typer.Option(help="A campaign's answers. Default: scores of the ticks.")] = None,
    where: Annotated[str | None, typer.Option(help="An SQL condition over the view calibration_pairs.")] = None,
    bearing: Annotated[bool, typer.Option(help="Include questions that the outcome answers only in part.")] = False,
    fit_name: Annotated[str | None, typer.Option("--fit", metavar="NAME", help="Fit and store a correction.")] = None,
) -> Result:
    """Compare the probabilities that the model gave with what really happened, for each question.

    The known outcomes are whether a block ran, whether an evaluation was true, whether an assertion held, and what
    people said of them in the viewer. Jobs use a stored correction (--fit) if they are enqueued with --correction NAME.

    Example: weavegen calibrate --campaign ran --where "type = 'action'" --fit ran-1
    """
    from weavegen.evaluator.calibration import figures

    with writing() as conn:
        pairs, undefined = read_pairs(conn, campaign, where, bearing=bearing)
        if not pairs:
            raise UsageError(
                "no answer of the model can be compared: ticks ask about known outcomes with --set "
                "all_questions=true, campaigns with docs/rubric.toml; --bearing includes more questions"
            )
        questions = [figures(question, truth, of_question) for (question, truth), of_question in pairs.items()]
        fits, refused = fit_all(pairs) if fit_name is not None else ([], [])
        if fit_name is not None:
            name, rows = one_line(fit_name), [vars(fit) for fit in fits]
            campaigns.save_correction(conn, name, rows, campaign=campaign, condition=where, version=__version__)

    def shown() -> Iterator[RenderableType]:
        for question in questions:
            yield from question_report(question)
        if is_simulated():
            yield SIMULATED_ANSWERS
        if undefined:
            yield f"{undefined} answers are left out: the model gave neither yes nor no any probability"
        if fit_name is not None:
            yield from fits_report(fit_name, fits, refused)

    value = {"questions": questions, "undefined": undefined, "correction": fit_name, "fits": fits, "refused": refused}
    return Result(value, shown())


def read_pairs(
    conn: Connection, campaign: str | None, where: str | None, *, bearing: bool
) -> tuple[dict[tuple[str, str], list["Pair"]], int]:
    """Pairs of score and outcome by question and kind of outcome, and the number of answers without a score."""
    from weavegen.evaluator.calibration import Pair

    source = "is null"
    if campaign is not None:
        source = f"= (select name from campaigns where id = {campaigns.campaign_id(conn, campaign)})"
    query = (
        "select question, truth, score, answer, trace_id, probability is null or score is null from calibration_pairs "
        f"where campaign {source}" + ("" if bearing else " and exact")
    )
    rows = reports.matching(conn, query, where, QUERY_SECONDS, "order by question, truth, block_id, rubric")
    conn.rollback()
    pairs: dict[tuple[str, str], list[Pair]] = {}
    defined = [row for row in rows if not row[-1]]
    for question, truth, score, answer, trace, _ in defined:
        pairs.setdefault((str(question), str(truth)), []).append(Pair(float(score), bool(answer), int(trace)))
    return pairs, len(rows) - len(defined)


def fit_all(pairs: dict[tuple[str, str], list["Pair"]]) -> tuple[list["Fit"], list[str]]:
    """A correction for each question that has enough pairs, and why the others have none.

    Of two sources of the true answer it takes the later: `ran` comes after `annotation`.

    Raises UsageError where no question has enough.
    """
    from weavegen.evaluator.calibration import fit

    fits: dict[str, Fit] = {}
    refused: list[str] = []
    for (question, _), of_question in pairs.items():
        try:
            fits[question] = fit(question, of_question)
        except UsageError as error:
            refused.append(str(error))
    if not fits:
        raise UsageError(f"no question can be corrected: {refused[0]}")
    return list(fits.values()), refused


def question_report(figures: "Figures") -> Iterator[RenderableType]:
    """How well the probabilities of one question agree with the outcomes."""
    from weavegen.evaluator.calibration import FEW, FEW_OF_A_SIDE

    share = figures.positives / figures.labels
    auc = "" if figures.auc is None else f", AUC {figures.auc:.3f}"
    yield display.cell(figures.question, "bold")
    yield (
        f"  {figures.labels} labels ({figures.truth}), {share:.1%} true, mean prediction {figures.predicted:.1%}; "
        f"Brier {figures.brier:.4f} (always predicting the share: {share * (1 - share):.4f}), "
        f"log loss {figures.log_loss:.4f}{auc}, calibration error {figures.calibration_error:.3f}"
    )
    if figures.few:
        yield Text(
            f"  few labels: the figures are unreliable with fewer than {FEW} labels, or fewer than "
            f"{FEW_OF_A_SIDE} true and {FEW_OF_A_SIDE} false ones",
            "yellow",
        )
    bins = [bin for bin in figures.bins if bin.predicted is not None and bin.true is not None]
    yield display.table(
        bins,
        {
            "  predicted": lambda bin: f"  {bin.low:.1f} to {bin.high:.1f}",
            "labels": "labels",
            "mean predicted": lambda bin: round(bin.predicted, 3),
            "share true": lambda bin: round(bin.true, 3),
        },
    )
    yield ""


def fits_report(name: str, fits: "Sequence[Fit]", refused: Sequence[str]) -> Iterator[RenderableType]:
    """The fitted corrections, and the questions without one."""
    yield display.table(
        fits,
        {
            "corrected question": "question",
            "slope": lambda fit: round(fit.slope, 3),
            "intercept": lambda fit: round(fit.intercept, 3),
            "labels": "labels",
            "Brier before": lambda fit: round(fit.brier_before, 4),
            "after": lambda fit: round(fit.brier_after, 4),
        },
    )
    yield "after: cross-validated; each label is corrected by a fit to other traces (few traces: to other labels)"
    for fit in fits:
        if fit.slope <= 0:
            yield display.cell(f"{fit.question}: the slope is not above 0: it would reverse the selection", "yellow")
    for line in refused:
        yield display.cell(f"not corrected: {line}", "yellow")
    yield display.cell(f"use it:  weavegen enqueue FILE --correction {name}")
