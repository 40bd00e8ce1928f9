"""The HTTP server that the viewer runs in."""

import socket

import uvicorn
from starlette.applications import Starlette

from weavegen.nano.http import Server as HttpServer


class Server(HttpServer):
    """Ends event streams when it is told to end: pages that are open would hold it. Browsers come back by
    themselves."""

    def __init__(self, viewer: Starlette) -> None:
        self.viewer = viewer
        # Seconds for what still runs then, such as a query.
        super().__init__(
            uvicorn.Config(viewer, log_level="warning", access_log=False, timeout_graceful_shutdown=5)
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.viewer.state.closing = True
        await super().shutdown(sockets)
