"""The command that shows how a search for a program went: evolution."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.syntax import Syntax
from rich.table import Table

from weavegen.cli.app import Json, app, out, print_json, reading
from weavegen.config import SIMULATED_MODEL
from weavegen.errors import UsageError
from weavegen.monitoring.display import cell
from weavegen.store.programs import About

SHOWN = 20
"""Ancestors of the best program that are listed, the newest first; JSON has all."""


@app.command()
def evolution(
    trace: Annotated[int, typer.Argument(help="Number of a trace of the agent funsearch, also while it runs.")],
    svg: Annotated[Path | None, typer.Option(help="Write a plot of the scores to this file.")] = None,
    json: Json = False,
) -> None:
    """Show how a search for a better function went: its generations, and the best program with its ancestors.

    A score is the evaluator's; higher is better. Programs that fail have none: they are counted, and left out of
    the mean. All programs are in the table `programs`.

    Example: weavegen evolution 17 --svg evolution.svg
    """
    from weavegen.store import programs

    with reading() as conn:
        rows = programs.of_trace(conn, trace)
        about = programs.about(conn, trace)
    if about is None:
        raise UsageError(f"there is no trace {trace}: see their numbers with  weavegen status JOB")
    if not rows:
        raise UsageError(f"trace {trace} has tried no programs yet: give one of the agent funsearch")
    told = generations(rows)
    best = best_of(rows)
    line = [] if best is None else ancestors(rows, best.number)
    if svg is not None:
        write(svg, picture(rows, about))
    if json:
        print_json(
            {
                "trace": trace,
                "task": about.file,
                "name": about.task.get("name"),
                "model": about.model,
                "generations": told,
                "best": None if best is None else program(best) | {"source": best.source},
                "ancestors": [program(row) | {"source": row.source} for row in line],
                "svg": None if svg is None else str(svg),
            }
        )
        return
    out.print(cell(title(about)))
    out.print(table(told))
    if best is None:
        out.print("(no program has a score yet)")
    else:
        out.print(f"\nThe best: program {best.number}, score {best.score:.6g}, of generation {best.generation}:\n")
        out.print(Syntax(best.source.strip(), "python", theme="ansi_dark", background_color="default"))
        if line:
            out.print("\nIts ancestors, that is, the versions that the model was shown, and theirs:\n")
            out.print(lineage([best, *line]))
    if svg is not None:
        out.print(f"\nplot written to {svg}", markup=False)


def generations(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """One for each generation: programs tried, those without a score, best, mean, median, best until then."""
    told: list[dict[str, Any]] = []
    so_far: float | None = None
    for number in sorted({row.generation for row in rows}):
        tried = [row for row in rows if row.generation == number]
        scores = [row.score for row in tried if row.score is not None]
        best = max(scores, default=None)
        so_far = max((score for score in (so_far, best) if score is not None), default=None)
        told.append(
            {
                "generation": number,
                "programs": len(tried),
                "without_score": len(tried) - len(scores),
                "best": best,
                "mean": statistics.fmean(scores) if scores else None,
                "median": statistics.median(scores) if scores else None,
                "best_so_far": so_far,
            }
        )
    return told


def best_of(rows: Sequence[Any]) -> Any | None:
    """The row with the highest score; of equals the shortest, and of these the first. None: none has a score."""
    scored = [row for row in rows if row.score is not None]
    return max(scored, key=lambda row: (row.score, -len(row.source), -row.number), default=None)


def ancestors(rows: Sequence[Any], number: int) -> list[Any]:
    """What a program was made from, and that from, the newest first."""
    known = {row.number: row for row in rows}
    found: set[int] = set()
    waiting = [number]
    while waiting:
        for parent in known[waiting.pop()].parents:
            if parent not in found and parent in known:
                found.add(parent)
                waiting.append(parent)
    return [known[one] for one in sorted(found, reverse=True)]


def program(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("number", "generation", "island", "parents", "score")}


def table(told: Sequence[dict[str, Any]]) -> Table:
    names = ("generation", "programs", "without score", "best", "mean", "median", "best so far")
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for name in names:
        shown.add_column(name, justify="right")
    for one in told:
        shown.add_row(*(text(one[name.replace(" ", "_")]) for name in names))
    return shown


def lineage(rows: Sequence[Any]) -> Table:
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("program", "generation", "island", "score", "made from"):
        shown.add_column(name, justify="left" if name == "made from" else "right")
    for row in rows[: SHOWN + 1]:
        shown.add_row(
            str(row.number), str(row.generation), text(row.island), text(row.score),
            ", ".join(map(str, row.parents)) or "(what the search began with)",
        )  # fmt: skip
    if len(rows) > SHOWN + 1:
        shown.add_row("...", "", "", "", f"({len(rows) - SHOWN - 1} more: --json has all)")
    return shown


def text(value: float | None) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def title(about: About) -> str:
    """What was searched for, and who wrote the programs."""
    model = "" if about.model is None else f", written by {about.model}"
    label = " (simulation)" if about.model == SIMULATED_MODEL else ""
    return f"{about.file}: {about.task.get('name')}{model}{label}"


def picture(rows: Sequence[Any], about: About) -> str:
    """The plot: every program with a score, the median of each generation, the best until then."""
    from weavegen.viewer import plot

    told = generations(rows)
    scored = [(row.generation, row.score) for row in rows if row.score is not None]
    if not scored:
        raise UsageError("no program has a score yet: there is nothing to plot")
    so_far = [(one["generation"], one["best_so_far"]) for one in told if one["best_so_far"] is not None]
    medians = [(one["generation"], one["median"]) for one in told if one["median"] is not None]
    reach = about.task.get("score_to_reach")
    # A few hopeless programs would press all others into a line at the top.
    heights = sorted(score for _, score in scored)
    lowest = min(so_far[0][1], heights[len(heights) // 4])
    return plot.svg(
        title(about),
        "generation",
        "score",
        [
            plot.Series("a program", scored, "points"),
            plot.Series("median", medians),
            plot.Series("best so far", so_far),
        ],
        [] if reach is None else [plot.ReferenceLine("to be reached", reach)],
        y_floor=lowest,
        whole_x=True,
    )


def write(file: Path, content: str) -> None:
    try:
        file.write_text(content)
    except OSError as error:
        raise UsageError(f"--svg: {file} can't be written ({error.strerror}): give another file") from None
