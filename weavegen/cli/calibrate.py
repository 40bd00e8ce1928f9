"""The command that compares what the model said with how it was."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from weavegen import __version__
from weavegen import config as configuration
from weavegen.cli.app import Json, app, out, print_json, reading
from weavegen.cli.rescore import SIMULATED
from weavegen.errors import UsageError
from weavegen.monitoring import display
from weavegen.trace.render import one_line

if TYPE_CHECKING:
    from weavegen.evaluator.calibration import Figures, Fit

SECONDS = 600.0
"""That the query may take."""


@app.command()
def calibrate(
    campaign: Annotated[
        str | None, typer.Option(help="The answers of this campaign; by default the scores of the ticks.")
    ] = None,
    where: Annotated[str | None, typer.Option(help="An SQL condition over the view calibration_pairs.")] = None,
    bearing: Annotated[
        bool,
        typer.Option(help="Also questions on which the truth only bears: whether the block ran, for all others."),
    ] = False,
    fit_: Annotated[
        str | None, typer.Option("--fit", metavar="NAME", help="Fit a correction of each question and store it.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare the probabilities that the model gave with how it really was, question by question.

    Known are: whether a block ran, whether an evaluation came out true, how assertions came out. A correction
    (--fit) is used by jobs that are enqueued with --correction NAME.

    Example: weavegen calibrate --campaign ran --where "type = 'action'" --fit ran-1
    """
    from weavegen.evaluator.calibration import Pair, figures, fit
    from weavegen.services import model_server
    from weavegen.store import campaigns, reports

    with reading() as conn:
        of = "is null"
        if campaign is not None:
            of = f"= (select name from campaigns where id = {campaigns.number(conn, campaign)})"
        query = (
            "select question, truth, score, answer, trace_id, probability is null from calibration_pairs "
            f"where campaign {of}" + ("" if bearing else " and exact")
        )
        rows = reports.matching(conn, query, where, SECONDS, "order by question, truth, block_id, rubric")
        conn.rollback()
        found: dict[tuple[str, str], list[Pair]] = {}
        undefined = 0
        for question, truth, score, answer, trace, nothing in rows:
            if nothing or score is None:
                undefined += 1
            else:
                found.setdefault((str(question), str(truth)), []).append(
                    Pair(float(score), bool(answer), int(trace))
                )
        if not found:
            raise UsageError(
                "no answer of the model's can be compared: the ticks ask about what is known with "
                "--set all_questions=true, campaigns with docs/rubric.toml; --bearing takes other questions, too"
            )
        measured = [figures(question, truth, pairs) for (question, truth), pairs in found.items()]
        fits: list[Fit] = []
        refused: list[str] = []
        if fit_ is not None:
            name = one_line(fit_)
            for (question, _), pairs in found.items():
                try:
                    fits.append(fit(question, pairs))
                except UsageError as error:
                    refused.append(str(error))
            if not fits:
                raise UsageError(f"nothing can be corrected: {refused[0]}")
            campaigns.save_correction(conn, name, fits, campaign=campaign, condition=where, version=__version__)
            conn.commit()
    if json:
        print_json(
            {
                "questions": [dataclasses.asdict(one) for one in measured],
                "undefined": undefined,
                "correction": fit_,
                "fits": [dataclasses.asdict(one) for one in fits],
                "refused": refused,
            }
        )
        return
    for one in measured:
        report(one)
    if model_server.simulated(configuration.load()):
        out.print(SIMULATED)
    if undefined:
        out.print(f"{undefined} answers are left out: the model gave neither yes nor no any mass there")
    if fit_ is not None:
        report_fits(fit_, fits, refused)


def report(one: "Figures") -> None:
    """Print the figures of one question."""
    from weavegen.evaluator.calibration import FEW, FEW_OF_A_SIDE

    share = one.positives / one.labels
    auc = "" if one.auc is None else f", AUC {one.auc:.3f}"
    out.print(display.cell(one.question, "bold"))
    out.print(
        f"  {one.labels} labels ({one.truth}), {share:.1%} true, predicted {one.predicted:.1%} on the mean; "
        f"Brier {one.brier:.4f} (the share alone: {share * (1 - share):.4f}), log loss {one.log_loss:.4f}{auc}, "
        f"calibration error {one.calibration_error:.3f}"
    )
    if one.few:
        out.print(
            f"  few labels: the figures say little below {FEW} of them, {FEW_OF_A_SIDE} true and "
            f"{FEW_OF_A_SIDE} false ones",
            style="yellow",
        )
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("  predicted", "labels", "mean predicted", "share true"):
        table.add_column(title, justify="right")
    for bin in one.bins:
        if bin.predicted is not None and bin.true is not None:
            table.add_row(
                f"{bin.low:.1f} to {bin.high:.1f}", str(bin.labels), f"{bin.predicted:.3f}", f"{bin.true:.3f}"
            )
    out.print(table)
    out.print()


def report_fits(name: str, fits: "Sequence[Fit]", refused: Sequence[str]) -> None:
    """Print what was fitted."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("corrected question", "slope", "intercept", "labels", "Brier before", "after"):
        table.add_column(title, justify="left" if title == "corrected question" else "right")
    for one in fits:
        numbers = (f"{one.slope:.3f}", f"{one.intercept:+.3f}", str(one.labels))
        table.add_row(display.cell(one.question), *numbers, f"{one.brier_before:.4f}", f"{one.brier_after:.4f}")
    out.print(table)
    out.print("after: each corrected by a fit to other traces (cross-validation)")
    for one in fits:
        if one.slope <= 0:
            out.print(
                display.cell(f"{one.question}: the slope is not above 0: selection would turn round", "yellow")
            )
    for line in refused:
        out.print(display.cell(f"not corrected: {line}", "yellow"))
    out.print(display.cell(f"use it:  weavegen enqueue FILE --correction {name}"))
