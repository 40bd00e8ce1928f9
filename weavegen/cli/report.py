"""The command that writes a page about a job: report."""

from pathlib import Path
from typing import Annotated

import typer

from weavegen import config as configuration
from weavegen.cli.app import Json, app, out, print_json, reading
from weavegen.cli.complete import job_numbers
from weavegen.errors import UsageError


@app.command()
def report(
    job: Annotated[int, typer.Argument(help="A job's number, also while it runs.", autocompletion=job_numbers)],
    file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to write it; report-JOB.html by default.")
    ] = None,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of each model server, for the cost in GPU seconds.")] = 1,
    refresh: Annotated[
        bool, typer.Option("--refresh/--as-is", help="Bring the views that it reads up to date first, if need be.")
    ] = True,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds each of its queries may take.")] = 600.0,
    json: Json = False,
) -> None:
    """Write a report about a job: one HTML page that needs nothing else, to read, to print, to send to somebody.

    What was generated, how scores and rewards are spread, how far the evaluator can be trusted, where time went,
    what a kept megabyte cost, why candidates lost, the best and the worst, and the exact settings. docs/report.md
    says how each figure is made. --json writes no page unless --out is given, and prints what would be in it.

    Example: weavegen report 3 --out report.html
    """
    from weavegen.services import model_server
    from weavegen.viewer import report as reports
    from weavegen.viewer import report_page

    with reading() as conn:
        if refresh:
            for name in reports.refresh(conn, job):
                if not json:
                    out.print(f"brought {name} up to date", markup=False, highlight=False)
        found = reports.read(conn, job, gpus, timeout, simulation=model_server.simulated(configuration.load()))
    if file is None and not json:
        file = Path(f"report-{job}.html")
    if file is not None:
        text = report_page.html(found)
        try:
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--out: {file} can't be written ({error.strerror}): give another file") from None
    if json:
        print_json(found)
        return
    out.print(f"report of job {job} written to {file}", markup=False, highlight=False)
    if found.simulated:
        out.print("SIMULATED model data: the figures say how weavegen works, not how a model does", markup=False)
