"""The command that tells figures to Prometheus: metrics."""

import sys
from typing import TYPE_CHECKING, Annotated

import sqlalchemy as sa
import typer

from weavegen.cli.app import Json, app, out, print_json, reading
from weavegen.errors import UsageError

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer


@app.command()
def metrics(
    listen: Annotated[
        int | None, typer.Option(min=1, max=65535, metavar="PORT", help="Serve them there, at /metrics.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    json: Json = False,
) -> None:
    """Print the installation's figures in Prometheus' text format, or serve them.

    What they mean: docs/metrics.md; a dashboard for Grafana: deploy/grafana/weavegen.json. `weavegen serve` has
    the same at /metrics.

    Example: weavegen metrics --listen 9464
    """
    from weavegen.monitoring import metrics as figures

    if listen is not None and json:
        raise UsageError("--json is for printing: leave it out with --listen")
    with reading() as conn:
        if listen is not None:
            with server_at(conn.engine, host, listen) as server:
                place = f"[{host}]" if ":" in host else host
                out.print(
                    f"figures for Prometheus: http://{place}:{listen}/metrics", markup=False, highlight=False
                )
                try:
                    server.serve_forever()
                except KeyboardInterrupt:
                    out.print("stopped")
        elif json:
            print_json(
                [
                    {"name": sample.name, "labels": sample.labels, "value": sample.value}
                    for metric in figures.read(conn)
                    for sample in metric.samples
                ]
            )
        else:
            sys.stdout.write(figures.text(conn))


def server_at(engine: sa.Engine, host: str, port: int) -> "ThreadingHTTPServer":
    """A server that answers GET /metrics, to be run. Raises UsageError where the address can't be had."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import Lock

    from weavegen.monitoring import metrics as figures

    one_at_a_time = Lock()

    class Answer(BaseHTTPRequestHandler):
        timeout = 30

        def do_GET(self) -> None:
            if self.path.split("?")[0] != "/metrics":
                self.answer(404, "the figures are at /metrics\n")
                return
            with one_at_a_time:
                found = figures.answer(engine)
            self.answer(*found)

        def answer(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", figures.CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """A scrape every few seconds is nothing to tell."""

    try:
        return ThreadingHTTPServer((host, port), Answer)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{host}:{port} can't be listened on ({reason}): give another --listen or --host"
        ) from None
