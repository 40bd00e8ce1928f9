"""The command evolution: shows the generations of a FunSearch, and its best program."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table

from weavegen import sql
from weavegen.cli import display
from weavegen.cli.app import Result, command, reading, write_file
from weavegen.config import SIMULATED_MODEL
from weavegen.errors import UsageError, required

MAX_ANCESTORS = 20
"""The table shows this many of the best program's ancestors, the newest first; JSON has all."""


@command()
def evolution(
    trace: Annotated[int, typer.Argument(help="The number of a trace of the agent funsearch, which may still run.")],
    svg: Annotated[Path | None, typer.Option(help="Also write a plot of the scores to this file.")] = None,
) -> Result:
    """Show how a search for a better function went: its generations, and the best program with its ancestors.

    Scores come from the task's evaluator; higher is better. A program that fails has no score: it is counted, and
    left out of the mean. The table `programs` holds all programs.

    Example: weavegen evolution 17 --svg evolution.svg
    """
    with reading() as conn:
        rows = sql.run(conn, "store/programs_of_trace", trace=trace).all()
        generations = sql.run(conn, "store/generations", trace=trace).mappings()
        missing = f"there is no trace {trace}: `weavegen status JOB` lists a job's traces"
        about = required(sql.run(conn, "store/task_of_trace", trace=trace).one_or_none(), missing)
    if not rows:
        raise UsageError(f"trace {trace} has tried no programs yet: give a trace of the agent funsearch")
    task = json.loads(about.source)  # only funsearch tries programs, and it takes tasks alone
    writer = "" if about.model is None else f", written by {about.model}"
    label = " (simulation)" if about.model == SIMULATED_MODEL else ""
    title = f"{about.name}: {task['name']}{writer}{label}"
    # The highest score; of equal scores the shortest program, then the first.
    scored = [row for row in rows if row.score is not None]
    best = max(scored, key=lambda row: (row.score, -len(row.source), -row.number), default=None)
    older = [] if best is None else ancestors(rows, best.number)
    if svg is not None:
        write_file(svg, picture(title, rows, generations, task.get("score_to_reach")), "--svg")
    value = {
        "trace": trace,
        "task": about.name,
        "name": task["name"],
        "model": about.model,
        "generations": generations,
        "best": None if best is None else program(best),
        "ancestors": [program(row) for row in older],
        "svg": None if svg is None else str(svg),
    }

    def shown() -> Iterator[RenderableType]:
        yield display.cell(title)
        yield display.table(generations)
        if best is None:
            yield "(no program has a score yet)"
        else:
            from rich.syntax import Syntax  # Pygments, which no other command needs

            yield f"\nThe best: program {best.number}, score {best.score:.6g}, of generation {best.generation}:\n"
            yield Syntax(best.source.strip(), "python", theme="ansi_dark", background_color="default")
            if older:
                yield "\nIts ancestors: the versions that the model was shown, and the ancestors of those:\n"
                yield lineage([best, *older])
        if svg is not None:
            yield f"\nplot written to {svg}"

    return Result(value, shown())


def ancestors(rows: Sequence[Any], number: int) -> list[Any]:
    """All direct and indirect parents of a program, the newest first."""
    line = {number}
    for row in reversed(rows):  # ordered by number: children come before their parents
        if row.number in line:
            line.update(row.parents)
    return [row for row in reversed(rows) if row.number in line and row.number != number]


def program(row: Any) -> dict[str, Any]:
    """A program as JSON has it."""
    return {name: getattr(row, name) for name in ("number", "generation", "island", "parents", "score", "source")}


def lineage(rows: Sequence[Any]) -> Table:
    """Programs with their parents."""
    table = display.table(
        rows[: MAX_ANCESTORS + 1],
        {
            "program": "number",
            "generation": "generation",
            "island": "island",
            "score": "score",
            "made from": lambda row: ", ".join(map(str, row.parents)) or "(the initial program)",
        },
    )
    if len(rows) > MAX_ANCESTORS + 1:
        table.add_row("...", "", "", "", f"({len(rows) - MAX_ANCESTORS - 1} more: --json has all)")
    return table


def picture(title: str, rows: Sequence[Any], generations: list[dict[str, Any]], target: float | None) -> str:
    """An SVG plot of every score, the medians and the best so far. Raises UsageError without scores."""
    from weavegen.viewer.plot import ReferenceLine, Series, svg

    scored = [(row.generation, row.score) for row in rows if row.score is not None]
    if not scored:
        raise UsageError("no program has a score yet: there is nothing to plot")
    best_so_far, medians = (
        [(row["generation"], row[name]) for row in generations if row[name] is not None]
        for name in ("best_so_far", "median")
    )
    # The axis begins at the lower quartile: otherwise a few very low scores would press all others into one line.
    heights = sorted(score for _, score in scored)
    lowest = min(best_so_far[0][1], heights[len(heights) // 4])
    series = [Series("a program", scored, "points"), Series("median", medians), Series("best so far", best_so_far)]
    marks = [] if target is None else [ReferenceLine("to be reached", target)]
    return svg(title, "generation", "score", series, marks, y_floor=lowest, whole_x=True)
