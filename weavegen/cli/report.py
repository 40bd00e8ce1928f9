"""The command report: writes a page about a job."""

from pathlib import Path
from typing import Annotated

import typer

from weavegen.cli.app import Result, command, is_simulated, print_part, reading, write_file
from weavegen.cli.complete import job_numbers


@command()
def report(
    job: Annotated[int, typer.Argument(help="A job's number. The job may still run.", autocompletion=job_numbers)],
    file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The page's file. Default: report-JOB.html.")
    ] = None,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of each model server, for the cost in GPU seconds.")] = 1,
    refresh: Annotated[
        bool, typer.Option("--refresh/--as-is", help="Refresh outdated views first, or use them as they are.")
    ] = True,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that each query may take.")] = 600.0,
    json: bool = False,
) -> Result:
    """Write a report about a job: one HTML page without external files, to read, print or send.

    It has the amounts generated, the distributions of scores and rewards, the reliability of the evaluator,
    where time went, the cost of a kept megabyte, why candidates lost, the best and worst of them, and the exact
    settings. docs/report.md defines each figure. --json prints these figures, and writes the page only if --out
    is given.

    Example: weavegen report 3 --out report.html
    """
    from weavegen.viewer.report import page, read

    with reading() as conn:
        if refresh:
            for name in read.refresh(conn, job):
                if not json:
                    print_part(f"brought {name} up to date")
        figures = read.read(conn, job, gpus, timeout, simulation=is_simulated())
    if file is None and not json:
        file = Path(f"report-{job}.html")
    if file is not None:
        write_file(file, page.html(figures), "--out")
    lines = [f"report of job {job} written to {file}"]
    if figures.simulated:
        lines.append("SIMULATED model data: the figures show how weavegen works, not how good a model is")
    return Result(figures, lines)
