"""The command serve: serves the viewer."""

import socket
import sys
from typing import Annotated

import typer

from weavegen import config as configuration
from weavegen.cli.app import command, print_json, print_part
from weavegen.errors import UsageError

PORT = 8991


@command()
def serve(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0: any free port.")] = PORT,
    host: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0: all addresses of this machine.")
    ] = "127.0.0.1",
    json: bool = False,
) -> None:
    """Serve the viewer: jobs, traces, rejected candidates, timelines, search and plots in a browser.

    There is no login. With a --host that other machines can reach, everybody who reaches it can read all traces;
    the chat box is closed then. Ctrl-C ends it.

    Example: weavegen serve --port 8991
    """
    from weavegen.services import postgres, schema
    from weavegen.viewer import database
    from weavegen.viewer.app import make_app
    from weavegen.viewer.guard import LOCAL
    from weavegen.viewer.server import Server

    config = configuration.load()
    with postgres.running(config) as url:
        schema.check(url)
        local = host in LOCAL
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host, port), family=family)
        except OSError as error:
            reason = (error.strerror or str(error)).partition(" (")[0]
            raise UsageError(
                f"can't listen at {host} port {port} ({reason}): choose another with --port"
            ) from None
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{listener.getsockname()[1]}"
        if json:
            print_json({"url": address})
            sys.stdout.flush()
        else:
            print_part(f"viewer at {address}  (Ctrl-C ends it)")
            if not local:
                print_part("there is no login: everybody who reaches this address can read all traces")
        viewer = make_app(
            database.reader(config, url), database.writer(url) if local else None, hosts=LOCAL if local else None
        )
        with listener:
            Server(viewer).run(sockets=[listener])
