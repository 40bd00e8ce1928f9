"""The command metrics: prints or serves the installation's figures for Prometheus."""

import sys
from typing import Annotated

import typer

from weavegen.cli.app import command, print_json, print_part, reading
from weavegen.errors import UsageError


@command()
def metrics(
    listen: Annotated[
        int | None, typer.Option(min=1, max=65535, metavar="PORT", help="Serve the figures on this port.")
    ] = None,
    host: Annotated[str, typer.Option(help="With --listen: the address to listen on.")] = "127.0.0.1",
    json: bool = False,
) -> None:
    """Print the installation's figures in Prometheus' text format, or serve them at /metrics.

    docs/metrics.md defines each figure; deploy/grafana/weavegen.json is a dashboard for Grafana. `weavegen serve`
    has the same figures at /metrics.

    Example: weavegen metrics --listen 9464
    """
    from weavegen.monitoring import metrics as figures

    if listen is not None and json:
        raise UsageError("--json is for printing: leave it out with --listen")
    with reading() as conn:
        if listen is not None:
            server, thread = figures.listener(conn.engine, host, listen)
            place = f"[{host}]" if ":" in host else host
            print_part(f"figures for Prometheus: http://{place}:{listen}/metrics")
            try:
                thread.join()
            except KeyboardInterrupt:
                print_part("stopped")
            finally:
                server.shutdown()
                server.server_close()
        elif json:
            samples = (sample for metric in figures.read(conn) for sample in metric.samples)
            print_json(
                [{"name": sample.name, "labels": sample.labels, "value": sample.value} for sample in samples]
            )
        else:
            sys.stdout.write(figures.text(conn))
