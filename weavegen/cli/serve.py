"""The command that serves the viewer."""

import sys
from typing import Annotated

import typer

from weavegen import config as configuration
from weavegen.cli.app import Json, app, out, print_json
from weavegen.errors import UsageError

PORT = 8991


@app.command()
def serve(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any free one.")] = PORT,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0: all of this machine's.")] = "127.0.0.1",
    json: Json = False,
) -> None:
    """Serve the viewer: jobs, traces, rejected candidates, timelines, search and plots in a browser.

    There is no login. At another --host than this machine's own, everybody who reaches it can read all traces;
    there the chat box is closed. Ends with Ctrl-C.

    Example: weavegen serve --port 8991
    """
    import socket

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
            out.print(f"viewer at {address}  (Ctrl-C ends it)", markup=False, soft_wrap=True)
            if not local:
                out.print("there is no login: everybody who reaches this address can read all traces")
        viewer = make_app(
            database.reader(config, url),
            database.writer(url) if local else None,
            hosts=LOCAL if local else None,
        )
        with listener:
            Server(viewer).run(sockets=[listener])
