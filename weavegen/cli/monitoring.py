"""Commands for other monitoring systems: metrics for Prometheus, spans for OpenTelemetry."""

import contextlib
import datetime
import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from weavegen.cli.app import command, print_json, print_part, reading
from weavegen.database import Database
from weavegen.errors import UsageError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


@command()
def metrics(
    listen: Annotated[int | None, typer.Option(min=1, max=65535, metavar="PORT", help="Serve on this port.")] = None,
    host: Annotated[str, typer.Option(help="With --listen: the address to listen on.")] = "127.0.0.1",
    json: bool = False,
) -> None:
    """Print the installation's metrics in Prometheus' text format, or serve them at /metrics.

    docs/metrics.md defines each metric; deploy/grafana/weavegen.json is a dashboard for Grafana. `weavegen serve`
    has the same metrics at /metrics.

    Example: weavegen metrics --listen 9464
    """
    from weavegen.monitoring import metrics as figures

    if listen is not None and json:
        raise UsageError("--json is for printing: leave it out with --listen")
    with reading() as conn:
        if listen is not None:
            serve(conn.database, host, listen)
        elif json:
            samples = (sample for metric in figures.read(conn) for sample in metric.samples)
            print_json([{"name": sample.name, "labels": sample.labels, "value": sample.value} for sample in samples])
        else:
            sys.stdout.write(figures.text(conn))


def serve(reader: Database, host: str, port: int) -> None:
    """Serve only the viewer's page of metrics, until SIGINT or SIGTERM. Raises UsageError."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import Route

    from weavegen.http_server import Server, listen
    from weavegen.viewer.pages import Pages

    site = Starlette(routes=[Route("/metrics", Pages(reader).metrics, methods=["GET"])])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with listen(host, port) as listener, contextlib.suppress(KeyboardInterrupt):
        place = f"[{host}]" if ":" in host else host
        print_part(f"figures for Prometheus: http://{place}:{port}/metrics")
        Server(uvicorn.Config(site, log_level="warning", access_log=False)).run(sockets=[listener])
    print_part("stopped")


log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""OpenTelemetry's variables for the collector's address. The SDK also reads those for headers and timeouts."""
POLL_SECONDS = 2.0
"""With --follow: time between reads of the database, and between attempts to reach a collector."""


@command()
def spans(
    job: Annotated[int | None, typer.Option(help="Send only ticks of this job.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Keep sending ticks as they end, until Ctrl-C.")] = False,
    hours: Annotated[
        float | None,
        typer.Option(min=0, max=1e6, help="Begin so many hours ago. Default: all ticks; with --follow only new ones."),
    ] = None,
    json: bool = False,
) -> None:
    """Send finished ticks to an OpenTelemetry collector: a trace for each tick, a span for each of its steps.

    OTEL_EXPORTER_OTLP_ENDPOINT is the address of a collector that takes OTLP over HTTP; OTEL_EXPORTER_OTLP_HEADERS has
    additional headers. --json prints the requests, of at most 200 ticks each, and sends nothing.

    Example: OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 weavegen spans --follow
    """
    from weavegen.monitoring.spans import Cursor, document, finished

    collector = None if json else Collector()
    begin = datetime.datetime.fromtimestamp(0, datetime.UTC)
    if hours is not None or follow:
        begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=hours or 0.0)
    cursor, ticks, sent = Cursor(begin), 0, 0
    with reading() as conn, contextlib.suppress(KeyboardInterrupt):
        while True:
            found, read, after = finished(conn, cursor, job)
            conn.rollback()
            if not read and not follow:
                break
            if not read or (collector is not None and found and not collector.send(found, follow)):
                time.sleep(POLL_SECONDS)
                continue
            if collector is None and found:
                print_json(document(found))
            cursor, ticks, sent = after, ticks + read, sent + len(found)
    if collector is not None:
        print_part(f"{ticks} ticks sent in {sent} spans")


class Collector:
    """The collector that OpenTelemetry's variables name. Raises UsageError if they name none."""

    def __init__(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from requests import Session

        if not any(os.environ.get(name, "").strip().startswith(("http://", "https://")) for name in ENDPOINTS):
            raise UsageError(f"set {ENDPOINTS[0]} to a collector, such as http://127.0.0.1:4318, or give --json")
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # this class reports errors itself
        session = Session()
        session.hooks["response"].append(lambda response, **options: setattr(self, "status", response.status_code))
        self.exporter = OTLPSpanExporter(session=session)
        self.status: int | None = None
        """HTTP status of the last answer; None: there was no answer."""
        self.away = False

    def send(self, spans: "list[ReadableSpan]", follow: bool) -> bool:
        """Send spans. Returns False if the collector is unreachable and `follow` allows another attempt.

        Raises UsageError if the collector refuses the spans, or is unreachable.
        """
        from opentelemetry.sdk.trace.export import SpanExportResult

        self.status = None
        if self.exporter.export(spans) is SpanExportResult.SUCCESS:
            self.away = False
            return True
        if self.status is not None and 400 <= self.status < 500 and self.status not in (408, 429):
            raise UsageError(f"the collector refuses spans: HTTP status {self.status}")
        if not follow:
            reason = "no connection" if self.status is None else f"HTTP status {self.status}"
            raise UsageError(f"the collector does not answer: {reason}")
        if not self.away:
            log.warning("the collector does not answer: trying again every %g seconds", POLL_SECONDS)
        self.away = True
        return False
