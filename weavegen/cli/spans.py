"""The command that sends finished ticks to OpenTelemetry: spans."""

import datetime
import logging
import os
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weavegen.cli.app import Json, app, out, print_json, reading
from weavegen.errors import RolloutError, TransientError, UsageError

if TYPE_CHECKING:
    from weavegen.monitoring.spans import Batch

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""OpenTelemetry's own settings: an address as it is, or one that /v1/traces is put behind."""
PAUSE = 2.0
"""Seconds between looks, with --follow."""
PATIENCE = 30.0
"""Seconds that a collector has for an answer."""


@app.command()
def spans(
    job: Annotated[int | None, typer.Option(help="Of this job alone.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Send ticks as they end, until somebody stops it.")
    ] = False,
    hours: Annotated[
        float | None,
        typer.Option(min=0, help="Begin so long ago; with --follow now by default, else with the first."),
    ] = None,
    json: Json = False,
) -> None:
    """Send finished ticks to an OpenTelemetry collector: a trace for each tick, a span for each of its steps.

    OTEL_EXPORTER_OTLP_ENDPOINT says where it is; JSON over HTTP is what it is sent. --json prints instead, a
    request of 200 ticks at most each.

    Example: OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 weavegen spans --follow
    """
    from weavegen.monitoring.spans import Cursor, finished

    url = None if json else endpoint()
    begin = datetime.datetime.fromtimestamp(0, datetime.UTC)
    if hours is not None or follow:
        begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=hours or 0.0)
    cursor, ticks, sent, away = Cursor(begin), 0, 0, False
    with reading() as conn:
        try:
            while True:
                batch, after = finished(conn, cursor, job)
                conn.rollback()
                if batch is None:
                    if not follow:
                        break
                    time.sleep(PAUSE)
                    continue
                if url is None:
                    print_json(batch.document)
                elif batch.spans and not post(url, batch, follow):
                    if not away:
                        log.warning("the collector does not answer: tried again every %g seconds", PAUSE)
                    away = True
                    time.sleep(PAUSE)
                    continue
                away = False
                cursor, ticks, sent = after, ticks + batch.ticks, sent + batch.spans
        except KeyboardInterrupt:
            pass
    if url is not None:
        out.print(f"{ticks} ticks sent in {sent} spans", markup=False, highlight=False)


def endpoint() -> str:
    """Where spans go. Raises UsageError where it is not said."""
    whole, base = (os.environ.get(name, "").strip() for name in ENDPOINTS)
    url = whole or (f"{base.rstrip('/')}/v1/traces" if base else "")
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"set {ENDPOINTS[1]} to a collector, such as http://127.0.0.1:4318, or give --json")
    return url


def post(url: str, batch: "Batch", follow: bool) -> bool:
    """Send a batch. False: the collector is away, and it is to be tried again. Raises UsageError."""
    from weavegen.config import NO_KEY
    from weavegen.pool.http import Http

    http = Http(NO_KEY, PATIENCE)
    try:
        http.post(url, batch.document, dict[str, Any])
    except TransientError as error:
        if follow:
            return False
        raise UsageError(f"the collector does not answer: {error}") from None
    except RolloutError as error:
        raise UsageError(f"the collector refuses spans: {error}") from None
    finally:
        http.close()
    return True
