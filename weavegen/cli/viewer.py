"""Commands that show the corpus in a browser: serve, report."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from weavegen import config as configuration
from weavegen.cli.app import Result, command, is_simulated, print_json, print_part, reading, write_file
from weavegen.cli.complete import job_numbers
from weavegen.services import postgres, schema
from weavegen.store.session import pooled, unpooled


@command()
def serve(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0: any free port.")] = 8991,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: all addresses.")] = "127.0.0.1",
    json: bool = False,
) -> None:
    """Serve the viewer: jobs, traces, rejected candidates, timelines, search and plots in a browser.

    There is no login. With a --host that other machines can reach, everybody who reaches it can read all traces;
    the forms are disabled then. Ctrl-C ends it.

    Example: weavegen serve --port 8991
    """
    from weavegen.http_server import listen
    from weavegen.viewer.app import Server, make_app, reader
    from weavegen.viewer.guard import LOCAL

    config = configuration.load()
    with postgres.running(config) as url:
        with unpooled(url).connect() as conn:
            schema.check(conn)
        local = host in LOCAL
        listener = listen(host, port)
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{listener.getsockname()[1]}"
        if json:
            print_json({"url": address})
            sys.stdout.flush()
        else:
            print_part(f"viewer at {address}  (Ctrl-C ends it)")
            if not local:
                print_part("there is no login: everybody who reaches this address can read all traces")
        writer = pooled(url) if local else None  # for the forms
        viewer = make_app(reader(config, url), writer, hosts=LOCAL if local else None)
        with listener:
            Server(viewer).run(sockets=[listener])


@command()
def report(
    job: Annotated[int, typer.Argument(help="A job's number. The job may still run.", autocompletion=job_numbers)],
    file: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Default: report-JOB.html.")] = None,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of each model server, for the cost in GPU seconds.")] = 1,
    refresh: Annotated[bool, typer.Option("--refresh/--as-is", help="Refresh outdated views first, or not.")] = True,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that each query may take.")] = 600.0,
    json: bool = False,
) -> Result:
    """Write a report about a job: one HTML page without external files, to read, print or send.

    It has the amounts generated, the distributions of scores and rewards, the reliability of the evaluator, where time
    went, the cost of a kept megabyte, why candidates lost, the best and worst of them, and the exact settings.
    docs/report.md defines each figure. --json prints these figures, and writes the page only if --out is given.

    Example: weavegen report 3 --out report.html
    """
    from weavegen.viewer import report as reports
    from weavegen.viewer import report_page

    with reading() as conn:
        if refresh:
            for name in reports.refresh(conn, job):
                if not json:
                    print_part(f"brought {name} up to date")
        figures = reports.read(conn, job, gpus, timeout, simulation=is_simulated())
    if file is None and not json:
        file = Path(f"report-{job}.html")
    if file is not None:
        write_file(file, report_page.html(figures), "--out")
    lines = [f"report of job {job} written to {file}"]
    if figures["simulated"]:
        lines.append("SIMULATED model data: the figures show how weavegen works, not how good a model is")
    return Result(figures, lines)
