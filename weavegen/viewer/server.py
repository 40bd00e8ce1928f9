"""The HTTP server of the viewer."""

import socket

import uvicorn
from starlette.applications import Starlette

from weavegen.nano.http import Server as HttpServer


class Server(HttpServer):
    """Ends event streams at shutdown, which open pages would delay. Browsers reconnect by themselves."""

    def __init__(self, viewer: Starlette) -> None:
        self.viewer = viewer
        # Requests under way, such as a query, get 5 seconds to end.
        super().__init__(
            uvicorn.Config(viewer, log_level="warning", access_log=False, timeout_graceful_shutdown=5)
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.viewer.state.closing = True
        await super().shutdown(sockets)
