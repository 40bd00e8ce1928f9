"""The command calibrate: compares the model's probabilities with recorded outcomes."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import sqlalchemy as sa
import typer
from rich.console import RenderableType
from rich.text import Text

from weavegen import __version__
from weavegen.cli import display
from weavegen.cli.app import QUERY_SECONDS, Result, command, is_simulated, writing
from weavegen.cli.rescore import SIMULATED_ANSWERS
from weavegen.errors import UsageError
from weavegen.trace.render import one_line

if TYPE_CHECKING:
    from weavegen.evaluator.calibration import Figures, Fit, Pair


@command()
def calibrate(
    campaign: Annotated[
        str | None, typer.Option(help="Use the answers of this campaign. Default: the scores of the ticks.")
    ] = None,
    where: Annotated[str | None, typer.Option(help="An SQL condition over the view calibration_pairs.")] = None,
    bearing: Annotated[
        bool, typer.Option(help="Include questions that the outcome answers only in part; see docs/rescoring.md.")
    ] = False,
    fit_name: Annotated[
        str | None, typer.Option("--fit", metavar="NAME", help="Fit a correction of each question and store it.")
    ] = None,
) -> Result:
    """Compare the probabilities that the model gave with what really happened, for each question.

    Outcomes are known for three things: whether a block ran, whether an evaluation was true, and whether an
    assertion held. Jobs use a stored correction (--fit) if they are enqueued with --correction NAME.

    Example: weavegen calibrate --campaign ran --where "type = 'action'" --fit ran-1
    """
    from weavegen.evaluator.calibration import figures
    from weavegen.store import campaigns

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
            name = one_line(fit_name)
            campaigns.save_correction(conn, name, fits, campaign=campaign, condition=where, version=__version__)

    def shown() -> Iterator[RenderableType]:
        for question in questions:
            yield from question_report(question)
        if is_simulated():
            yield SIMULATED_ANSWERS
        if undefined:
            yield f"{undefined} answers are left out: the model gave neither yes nor no any probability"
        if fit_name is not None:
            yield from fits_report(fit_name, fits, refused)

    value = {
        "questions": questions,
        "undefined": undefined,
        "correction": fit_name,
        "fits": fits,
        "refused": refused,
    }
    return Result(value, shown())


def read_pairs(
    conn: sa.Connection, campaign: str | None, where: str | None, *, bearing: bool
) -> tuple[dict[tuple[str, str], list["Pair"]], int]:
    """Pairs of score and outcome by question and kind of outcome, and the number of answers without a score."""
    from weavegen.evaluator.calibration import Pair
    from weavegen.store import campaigns, reports

    source = "is null"
    if campaign is not None:
        source = f"= (select name from campaigns where id = {campaigns.number(conn, campaign)})"
    query = (
        "select question, truth, score, answer, trace_id, probability is null from calibration_pairs "
        f"where campaign {source}" + ("" if bearing else " and exact")
    )
    rows = reports.matching(conn, query, where, QUERY_SECONDS, "order by question, truth, block_id, rubric")
    conn.rollback()
    pairs: dict[tuple[str, str], list[Pair]] = {}
    undefined = 0
    for question, truth, score, answer, trace, no_probability in rows:
        if no_probability or score is None:
            undefined += 1
        else:
            pair = Pair(float(score), bool(answer), int(trace))
            pairs.setdefault((str(question), str(truth)), []).append(pair)
    return pairs, undefined


def fit_all(pairs: dict[tuple[str, str], list["Pair"]]) -> tuple[list["Fit"], list[str]]:
    """A correction for each question that has enough pairs, and why the others have none.

    Raises UsageError where no question has enough.
    """
    from weavegen.evaluator.calibration import fit

    fits: list[Fit] = []
    refused: list[str] = []
    for (question, _), of_question in pairs.items():
        try:
            fits.append(fit(question, of_question))
        except UsageError as error:
            refused.append(str(error))
    if not fits:
        raise UsageError(f"no question can be corrected: {refused[0]}")
    return fits, refused


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
            "mean predicted": lambda bin: f"{bin.predicted:.3f}",
            "share true": lambda bin: f"{bin.true:.3f}",
        },
    )
    yield ""


def fits_report(name: str, fits: "Sequence[Fit]", refused: Sequence[str]) -> Iterator[RenderableType]:
    """The fitted corrections, and the questions without one."""
    yield display.table(
        fits,
        {
            "corrected question": "question",
            "slope": lambda fit: f"{fit.slope:.3f}",
            "intercept": lambda fit: f"{fit.intercept:+.3f}",
            "labels": "labels",
            "Brier before": lambda fit: f"{fit.brier_before:.4f}",
            "after": lambda fit: f"{fit.brier_after:.4f}",
        },
    )
    yield "after: by cross-validation; the traces of each pair are left out of the fit that corrects it"
    for fit in fits:
        if fit.slope <= 0:
            yield display.cell(
                f"{fit.question}: the slope is not above 0: it would reverse the selection", "yellow"
            )
    for line in refused:
        yield display.cell(f"not corrected: {line}", "yellow")
    yield display.cell(f"use it:  weavegen enqueue FILE --correction {name}")
